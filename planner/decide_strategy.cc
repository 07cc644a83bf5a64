#include "planner/decide_strategy.h"

#include <fmt/format.h>

#include "planner/pick.h"
#include "proto/strategy.h"

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

// What has no counterpart where every rank has all parameters, beside what CheckStrategy refuses.
// How units are wrapped and which dtypes they are gathered in are no contradiction, so that one
// request can be compared across strategies.
Status CheckReplicated(const PlanRequest& r) {
  if (!r.cpu_offload) return OkStatus();
  return InvalidArgument(
      fmt::format("cpu-offload: strategy {} shards nothing; leave it out", r.strategy));
}

// Parameters are computed with as they are, and gradients reduced in their dtype.
void DecideReplicated(const PlanRequest& r, StepDecisions& d) {
  d.replicas = r.world_size;
  d.shard_ranks = 1;
  d.forward.compute = d.reduce = d.original;
  d.forward.casts_inputs = false;
  d.forward.output.reset();
}

// What PyTorch refuses of FSDP1, or does without doing what was asked for.
Status CheckFlat(const PlanRequest& r, pb::Strategy strategy) {
  if (IsHybrid(strategy) && r.world_size > 1 && r.replicate_size == r.world_size) {
    return InvalidArgument(fmt::format(
        "replicate: found {}, which leaves shard groups of one rank, where PyTorch's {} does not "
        "reduce over the replicas; use no_shard",
        r.replicate_size, r.strategy));
  }
  if (!r.cpu_offload) return OkStatus();
  if (strategy == pb::NO_SHARD || r.world_size == 1) {
    return InvalidArgument(
        "cpu-offload: is not planned where nothing is sharded; use full_shard and two ranks or "
        "more");
  }
  if (r.micro_batches.count > 1 && r.micro_batches.reduce) {
    return InvalidArgument(
        "cpu-offload: PyTorch's FSDP1 does not add up gradients on the host, so that all "
        "micro-batches but the last would be lost; reduce in the last one only (no_sync)");
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
  d.strategy = ParseStrategy(r.strategy).value();
  d.replicas = r.replicate_size;
  d.shard_ranks = r.world_size / r.replicate_size;
  RETURN_IF_ERROR(DecideFsdp1(r.fsdp1, d.fsdp1));
  RETURN_IF_ERROR(DecideDdp(r.ddp, d.ddp));
  if (d.strategy == pb::FULLY_SHARD) return OkStatus();
  if (IsFsdp1(d.strategy)) return DecideFlat(r, d);
  RETURN_IF_ERROR(CheckReplicated(r));
  DecideReplicated(r, d);
  return OkStatus();
}

}  // namespace foreshard
