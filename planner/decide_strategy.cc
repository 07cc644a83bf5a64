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
  return InvalidArgument(fmt::format("strategy: {} is not planned yet", r.strategy));
}

}  // namespace foreshard
