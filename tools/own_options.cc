#include "tools/own_options.h"

#include "proto/strategy.h"
#include "tools/plan_flags.h"

namespace foreshard {
namespace {

// Of what fully_shard alone has.
void TakeBackFsdp2(PlanRequest& r) {
  const PlanRequest none;
  r.reshard_after_forward = none.reshard_after_forward;
  r.root_reshard_after_forward = none.root_reshard_after_forward;
  r.forward_prefetch.clear();
  r.backward_prefetch.clear();
  r.forward_prefetch_ahead = none.forward_prefetch_ahead;
  r.backward_prefetch_ahead = none.backward_prefetch_ahead;
  r.sharded_in_backward.clear();
  r.shard_placements.clear();
  r.reduce_input_buffers = none.reduce_input_buffers;
  r.gradient_divide_factor = none.gradient_divide_factor;
  r.force_sum_reduction = none.force_sum_reduction;
  r.separate_reduce_group = none.separate_reduce_group;
  r.output_dtype = none.output_dtype;
  r.micro_batches.reshard_after_backward = none.micro_batches.reshard_after_backward;
  r.micro_batches.all_reduce = none.micro_batches.all_reduce;
  r.micro_batches.last_backward = none.micro_batches.last_backward;
}

bool HasReplicas(pb::Strategy strategy) {
  return strategy == pb::FULLY_SHARD || IsHybrid(strategy);
}

void TakeBackWrap(PlanRequest& r) {
  const PlanRequest none;
  r.wrap = none.wrap;
  r.wrap_calls.clear();
  r.force_leaf_modules = none.force_leaf_modules;
  r.exclude_wrap_modules = none.exclude_wrap_modules;
}

}  // namespace

void KeepOwnOptions(PlanRequest& request) {
  const pb::Strategy strategy = ParseStrategy(request.strategy).value();
  if (strategy != pb::FULLY_SHARD) TakeBackFsdp2(request);
  if (!IsFsdp1(strategy)) request.fsdp1 = {};
  if (!IsReplicated(strategy)) request.ddp = {};
  if (!HasReplicas(strategy)) request.replicate_size = 1;
  if (IsReplicated(strategy)) TakeBackWrap(request);
}

void KeepOwnChoices(PlanChoice& choice) {
  const pb::Strategy strategy = ParseStrategy(choice.strategy).value();
  if (strategy != pb::FULLY_SHARD) choice.reshard_after_forward.clear();
  if (!HasReplicas(strategy)) choice.replicate = 0;
  if (IsReplicated(strategy)) choice.wrap.clear();
}

}  // namespace foreshard
