#include "planner/decide_strategy.h"

#include <fmt/format.h>

#include "planner/pick.h"

namespace foreshard {
namespace {

Status DecideFsdp1(const Fsdp1Request& r, pb::Fsdp1Options& options) {
  options.set_use_orig_params(r.use_orig_params);
  options.set_forward_prefetch(r.forward_prefetch);
  options.set_no_limit_all_gathers(!r.limit_all_gathers);
  ASSIGN_OR_RETURN(const auto prefetch, Pick<pb::Fsdp1Options::BackwardPrefetch>(
                                            "backward-prefetch", r.backward_prefetch,
                                            {{"pre", pb::Fsdp1Options::BACKWARD_PRE},
                                             {"post", pb::Fsdp1Options::BACKWARD_POST},
                                             {"none", pb::Fsdp1Options::BACKWARD_NONE}}));
  options.set_backward_prefetch(prefetch);
  return OkStatus();
}

Status DecideDdp(const DdpRequest& r, pb::DdpOptions& options) {
  if (r.bucket_bytes < 1 || r.first_bucket_bytes < 1) {
    return InvalidArgument(
        fmt::format("bucket: found buckets of {} bytes, the first of {}; expected 1 or more",
                    r.bucket_bytes, r.first_bucket_bytes));
  }
  options.set_bucket_bytes(r.bucket_bytes);
  options.set_first_bucket_bytes(r.first_bucket_bytes);
  options.set_gradient_as_bucket_view(r.gradient_as_bucket_view);
  return OkStatus();
}

// What has no counterpart where every rank has all parameters. How units are wrapped and which
// dtypes they are gathered in are no contradiction, so that one request can be compared across
// strategies.
Status CheckReplicated(const PlanRequest& r) {
  const auto refuse = [&](const char* flag) {
    return InvalidArgument(
        fmt::format("{}: strategy {} shards nothing; leave it out", flag, r.strategy));
  };
  if (r.replicate_size != 1 && r.replicate_size != r.world_size) {
    return InvalidArgument(
        fmt::format("replicate: {} replicas, but with strategy {} each of the {} ranks is one",
                    r.replicate_size, r.strategy, r.world_size));
  }
  if (r.cpu_offload) return refuse("cpu-offload");
  if (!r.shard_placements.empty()) return refuse("shard-dim");
  if (r.gradient_divide_factor) return refuse("divide-factor");
  if (r.force_sum_reduction) return refuse("force-sum");
  if (r.separate_reduce_group) return refuse("separate-reduce-group");
  return OkStatus();
}

// Parameters are computed with as they are, and gradients reduced in their dtype.
void DecideReplicated(const PlanRequest& r, StepDecisions& d) {
  d.replicas = r.world_size;
  d.shard_ranks = 1;
  d.forward.compute = d.reduce = d.original;
  d.forward.casts_inputs = false;
  d.forward.output.reset();
}

bool IsHybrid(pb::Strategy s) { return s == pb::HYBRID_SHARD || s == pb::HYBRID_SHARD_ZERO2; }

// What FSDP1 does not have.
Status CheckFlat(const PlanRequest& r, pb::Strategy strategy) {
  if (IsHybrid(strategy) && r.replicate_size == 1) {
    return InvalidArgument(fmt::format(
        "strategy: {} shards within groups of ranks that hold the same; set replicate to how many "
        "of them there are",
        r.strategy));
  }
  if (!IsHybrid(strategy) && r.replicate_size > 1) {
    return InvalidArgument(fmt::format(
        "strategy: {} has no replicas, and replicate is {}; use hybrid_shard or hybrid_shard_zero2",
        r.strategy, r.replicate_size));
  }
  if (IsHybrid(strategy) && r.replicate_size == r.world_size) {
    return InvalidArgument(fmt::format(
        "strategy: {} with {} replicas leaves shard groups of one rank, in which PyTorch does not "
        "reduce over the replicas; use no_shard",
        r.strategy, r.replicate_size));
  }
  const auto refuse = [&](const char* flag, const char* what) {
    return InvalidArgument(fmt::format("{}: FSDP1 {}; use strategy fsdp2", flag, what));
  };
  if (!r.shard_placements.empty()) return refuse("shard-dim", "cuts flat parameters");
  if (!r.forward_prefetch.empty() || r.forward_prefetch_ahead > 0) {
    return refuse("forward-prefetch", "gathers one unit ahead or none");
  }
  if (!r.backward_prefetch.empty() || r.backward_prefetch_ahead > 0) {
    return refuse("backward-prefetch", "gathers the unit before or none");
  }
  if (!r.sharded_in_backward.empty()) {
    return refuse("no-unshard-in-backward", "gathers every unit in backward");
  }
  return OkStatus();
}

// Ranks and dtypes of FSDP1.
Status DecideFlat(const PlanRequest& r, StepDecisions& d) {
  RETURN_IF_ERROR(CheckFlat(r, d.strategy));
  // PyTorch switches to NO_SHARD where nobody is there to share with.
  if (d.shard_ranks == 1) d.strategy = pb::NO_SHARD;
  if (d.strategy == pb::NO_SHARD) {
    d.shard_ranks = 1;
    d.replicas = r.world_size;
  }
  if (!r.reduce_dtype) d.reduce = d.forward.compute;
  d.forward.casts_inputs = false;
  d.casts_root_inputs = r.cast_forward_inputs && r.param_dtype.has_value();
  return OkStatus();
}

}  // namespace

Status DecideStrategy(const PlanRequest& r, StepDecisions& d) {
  ASSIGN_OR_RETURN(d.strategy, Pick<pb::Strategy>("strategy", r.strategy,
                                                  {{"fsdp2", pb::FULLY_SHARD},
                                                   {"full_shard", pb::FULL_SHARD},
                                                   {"shard_grad_op", pb::SHARD_GRAD_OP},
                                                   {"no_shard", pb::NO_SHARD},
                                                   {"hybrid_shard", pb::HYBRID_SHARD},
                                                   {"hybrid_shard_zero2", pb::HYBRID_SHARD_ZERO2},
                                                   {"ddp", pb::DDP},
                                                   {"zero1", pb::ZERO1}}));
  d.replicas = r.replicate_size;
  d.shard_ranks = r.world_size / r.replicate_size;
  RETURN_IF_ERROR(DecideFsdp1(r.fsdp1, d.fsdp1));
  RETURN_IF_ERROR(DecideDdp(r.ddp, d.ddp));
  if (d.strategy == pb::FULLY_SHARD) return OkStatus();
  if (IsReplicated(d.strategy)) {
    RETURN_IF_ERROR(CheckReplicated(r));
    DecideReplicated(r, d);
    return OkStatus();
  }
  if (IsFsdp1(d.strategy)) return DecideFlat(r, d);
  return InvalidArgument(fmt::format("strategy: {} is not planned yet", r.strategy));
}

}  // namespace foreshard
