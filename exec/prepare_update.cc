// Where clipping and the optimizer find the parts of each parameter.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "exec/prepare_parts.h"
#include "proto/oplib/optimizer_state.h"

namespace foreshard::exec {
namespace {

// The parameters whose gradients each buffer holds, one behind the other: those of the unit whose
// reduction or its cast writes it, or the one whose gradient is copied to the host.
std::map<int, std::vector<int>> ParametersOfGradients(const pb::Plan& plan,
                                                      const ShardMap& shards) {
  std::map<int, std::vector<int>> parameters;
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (op.has_copy_to_host()) parameters[op.out(0)] = {op.copy_to_host().parameter()};
      if (!op.has_reduce_scatter() && !op.has_local_reduce() && !op.has_grad_finalize()) continue;
      for (const int buffer : op.out()) {
        if (!parameters.contains(buffer)) parameters[buffer] = shards.Trainable(op.unit());
      }
    }
  }
  return parameters;
}

// Of every trainable parameter in the plan's order, where in which of `buffers` its gradient is.
StatusOr<std::vector<GradientSlice>> FindGradients(
    const OpContext& c, const google::protobuf::RepeatedField<int32_t>& buffers) {
  const auto parameters = ParametersOfGradients(c.plan, c.shards);
  std::map<int, GradientSlice> slices;
  for (int i = 0; i < buffers.size(); ++i) {
    const auto held = parameters.find(buffers[i]);
    if (held == parameters.end()) {
      return InvalidPlan(fmt::format("reads buffer {}, which no reduction writes", buffers[i]));
    }
    int64_t offset = 0;
    DType dtype = DType::kFp32;
    const bool is_local = c.plan.buffers(buffers[i]).host();  // of one parameter, without padding
    for (const int p : held->second) {
      dtype = c.shards.dtype(p);
      slices[p] = {dtype, c.shards.local_numel(p), i, offset};
      offset += is_local ? c.shards.local_numel(p) : c.shards.padded_numel(p);
    }
    if (offset * SizeOf(dtype) == c.buffer_bytes[buffers[i]]) continue;
    return InvalidPlan(fmt::format("gradient buffer {} holds {} bytes, its parameters take {}",
                                   buffers[i], c.buffer_bytes[buffers[i]], offset * SizeOf(dtype)));
  }
  std::vector<GradientSlice> found;
  for (const int p : c.shards.Trainable()) {
    const auto slice = slices.find(p);
    if (slice == slices.end()) {
      return InvalidPlan(fmt::format("has no gradient for {}", c.plan.parameters(p).path()));
    }
    found.push_back(slice->second);
  }
  return found;
}

DType OriginalDType(const pb::Plan& plan) {
  return static_cast<DType>(plan.decisions().original_dtype());
}

bool Clips(const pb::Plan& plan) {
  return std::ranges::any_of(plan.segments(), [](const pb::Segment& segment) {
    return std::ranges::any_of(segment.ops(), [](const pb::Op& op) { return op.has_clip_norms(); });
  });
}

StatusOr<UpdateParameters> UpdateOf(const OpContext& c) {
  const pb::OptimizerStep& step = c.op.optimizer_step();
  UpdateParameters update;
  update.rule = step.kind() == pb::SGD          ? UpdateRule::kSgd
                : step.kind() == pb::ADAMW_8BIT ? UpdateRule::kAdamW8Bit
                                                : UpdateRule::kAdamW;
  update.keeps_roots = step.kind() == pb::ADAMW && step.impl() == pb::FOREACH;
  update.counts_norm = !Clips(c.plan);
  update.state = static_cast<DType>(oplib::MomentDType(c.plan, step.dtype()));
  update.learning_rate = step.learning_rate();
  update.beta1 = step.beta1();
  update.beta2 = step.beta2();
  update.eps = step.eps();
  update.weight_decay = step.weight_decay();
  update.momentum = step.momentum();
  ASSIGN_OR_RETURN(const std::vector<GradientSlice> gradients, FindGradients(c, c.op.in()));
  const int count = static_cast<int>(gradients.size());
  const int each = (c.op.out_size() - count) / std::max(count, 1);
  for (int i = 0; i < count; ++i) {
    UpdateParameters::Slice slice{gradients[i], i};
    if (each > 0) slice.state = count + i * each;
    update.slices.push_back(slice);
  }
  return update;
}

}  // namespace

StatusOr<Work> UpdateWorkOf(const OpContext& c) {
  if (c.op.has_clip_norms()) {
    ASSIGN_OR_RETURN(auto slices, FindGradients(c, c.op.in()));
    return Work(MeasureGradients{OriginalDType(c.plan), std::move(slices)});
  }
  if (c.op.has_clip_scale()) {
    ASSIGN_OR_RETURN(auto slices, FindGradients(c, c.op.out()));
    return Work(
        ScaleGradients{c.op.clip_scale().max_norm(), OriginalDType(c.plan), std::move(slices)});
  }
  ASSIGN_OR_RETURN(UpdateParameters update, UpdateOf(c));
  return Work(std::move(update));
}

}  // namespace foreshard::exec
