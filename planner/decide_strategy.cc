#include "planner/decide_strategy.h"

#include <fmt/format.h>

#include "planner/pick.h"

namespace foreshard {
namespace {

Status DecideFsdp1(const Fsdp1Request& r, pb::Fsdp1Options& options) {
  options.set_use_orig_params(r.use_orig_params);
  options.set_forward_prefetch(r.forward_prefetch);
  options.set_no_limit_all_gathers(!r.limit_all_gathers);
  ASSIGN_OR_RETURN(const auto prefetch,
                   Pick<pb::Fsdp1Options::BackwardPrefetch>(
                       "backward-prefetch", r.backward_prefetch,
                       {{"pre", pb::Fsdp1Options::BACKWARD_PRE},
                        {"post", pb::Fsdp1Options::BACKWARD_POST},
                        {"none", pb::Fsdp1Options::BACKWARD_NONE}}));
  options.set_backward_prefetch(prefetch);
  return OkStatus();
}

void DecideDdp(const DdpRequest& r, pb::DdpOptions& options) {
  options.set_bucket_bytes(r.bucket_bytes);
  options.set_first_bucket_bytes(r.first_bucket_bytes);
  options.set_gradient_as_bucket_view(r.gradient_as_bucket_view);
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
  DecideDdp(r.ddp, d.ddp);
  if (d.strategy == pb::FULLY_SHARD) return OkStatus();
  return InvalidArgument(fmt::format("strategy: {} is not planned yet", r.strategy));
}

}  // namespace foreshard
