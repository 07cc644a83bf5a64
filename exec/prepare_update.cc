// Where clipping and the optimizer find the parts of each parameter.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "exec/prepare_parts.h"
#include "proto/oplib/optimizer_state.h"

namespace foreshard::exec {
namespace {

// Whether what the op writes is all of a unit's gradient, or becomes that.
bool Reduces(const pb::Op& op) {
  if (op.has_all_reduce()) return op.phase() != pb::CLIP;
  return op.has_reduce_scatter() || op.has_local_reduce() || op.has_grad_finalize() ||
         op.has_copy_to_host();
}

// The parameters whose gradients each buffer holds, one behind the other: those of the unit whose
// reduction or its cast writes it, or the one whose gradient is copied to the host.
std::map<int, std::vector<int>> ParametersOfGradients(const pb::Plan& plan,
                                                      const ShardMap& shards) {
  std::map<int, std::vector<int>> parameters;
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (op.has_copy_to_host() && !shards.IsFlat(op.unit())) {
        parameters[op.out(0)] = {op.copy_to_host().parameter()};
      }
      if (!Reduces(op)) continue;
      for (const int buffer : op.out()) {
        if (!parameters.contains(buffer)) parameters[buffer] = shards.Trainable(op.unit());
      }
    }
  }
  return parameters;
}

bool HasBuckets(const pb::Plan& plan) {
  return std::ranges::any_of(plan.buffers(),
                             [](const pb::Buffer& b) { return b.category() == pb::BUCKET; });
}

// With buckets the op lists one gradient a parameter and where it begins.
StatusOr<std::vector<GradientSlice>> ListedGradients(const OpContext& c) {
  const std::vector<int> trainable = c.shards.Trainable();
  if (c.op.in_size() < static_cast<int>(trainable.size())) {
    return InvalidPlan(fmt::format("reads {} buffers, {} parameters are trained", c.op.in_size(),
                                   trainable.size()));
  }
  std::vector<GradientSlice> found;
  for (int i = 0; i < static_cast<int>(trainable.size()); ++i) {
    const int64_t from = c.op.in_offsets().empty() ? 0 : c.op.in_offsets(i);
    const DType dtype = c.shards.dtype(trainable[i]);
    const int64_t numel = c.shards.numel(trainable[i]);
    if ((from + numel) * SizeOf(dtype) > c.buffer_bytes[c.op.in(i)]) {
      return InvalidPlan(fmt::format("reads elements {} to {} of buffer {}, which holds {} bytes",
                                     from, from + numel, c.op.in(i), c.buffer_bytes[c.op.in(i)]));
    }
    found.push_back({dtype, numel, i, from});
  }
  return found;
}

// Of every trainable parameter in the plan's order, where in which of `buffers` its gradient is.
StatusOr<std::vector<GradientSlice>> FindGradients(
    const OpContext& c, const google::protobuf::RepeatedField<int32_t>& buffers) {
  if (HasBuckets(c.plan)) return ListedGradients(c);
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
      if (c.shards.IsFlat(c.plan.parameters(p).unit())) {
        slices[p] = {dtype, c.shards.local_numel(p), i, c.shards.local_offset(p)};
        offset = c.shards.buffer_numel(p);
        continue;
      }
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

// The same of what the optimizer updates as one tensor.
std::vector<GradientSlice> OfTensors(const ShardMap& shards,
                                     const std::vector<GradientSlice>& gradients) {
  std::map<int, GradientSlice> by_parameter;
  const std::vector<int> trainable = shards.Trainable();
  for (size_t i = 0; i < trainable.size(); ++i) by_parameter[trainable[i]] = gradients[i];
  std::vector<GradientSlice> slices;
  for (const ShardMap::Tensor& tensor : shards.Tensors()) {
    GradientSlice slice = by_parameter.at(tensor.parameter);
    if (tensor.is_whole_shard) slice.gradient_from = 0;
    slice.numel = tensor.numel;
    slices.push_back(slice);
  }
  return slices;
}

DType OriginalDType(const pb::Plan& plan) {
  return static_cast<DType>(plan.decisions().original_dtype());
}

bool Clips(const pb::Plan& plan) {
  return std::ranges::any_of(plan.segments(), [](const pb::Segment& segment) {
    return std::ranges::any_of(segment.ops(), [](const pb::Op& op) { return op.has_clip_norms(); });
  });
}

// Where each tensor's elements and its state are in what the op writes: shards, then states.
Status AddSlices(const OpContext& c, UpdateParameters& update) {
  const auto& out = c.op.out();
  const auto is_state = [&](int b) { return c.plan.buffers(b).category() == pb::OPTIMIZER_STATE; };
  const auto shards = static_cast<int>(std::ranges::find_if(out, is_state) - out.begin());
  const std::vector<ShardMap::Tensor> tensors = c.shards.UpdatedTensors();
  const std::vector<GradientSlice> gradients = OfTensors(c.shards, update.gradients);
  const int each = (c.op.out_size() - shards) / std::max(static_cast<int>(tensors.size()), 1);
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    const pb::Parameter& parameter = c.plan.parameters(tensors[i].parameter);
    const auto shard = std::ranges::find(out, parameter.sharded_buffer());
    if (shard == out.end()) {
      return InvalidPlan(fmt::format("does not write the shard of {}", parameter.path()));
    }
    UpdateParameters::Slice slice{gradients[i], static_cast<int>(shard - out.begin())};
    if (each > 0) slice.state = shards + i * each;
    slice.numel = tensors[i].numel;
    slice.parameter_from = tensors[i].first;
    update.slices.push_back(slice);
  }
  return OkStatus();
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
  ASSIGN_OR_RETURN(update.gradients, FindGradients(c, c.op.in()));
  RETURN_IF_ERROR(AddSlices(c, update));
  return update;
}

}  // namespace

StatusOr<Work> UpdateWorkOf(const OpContext& c) {
  if (c.op.has_clip_norms()) {
    ASSIGN_OR_RETURN(const auto gradients, FindGradients(c, c.op.in()));
    return Work(MeasureGradients{OriginalDType(c.plan), OfTensors(c.shards, gradients)});
  }
  if (c.op.has_clip_scale()) {
    ASSIGN_OR_RETURN(const auto gradients, FindGradients(c, c.op.out()));
    return Work(ScaleGradients{c.op.clip_scale().max_norm(), OriginalDType(c.plan),
                               OfTensors(c.shards, gradients)});
  }
  ASSIGN_OR_RETURN(UpdateParameters update, UpdateOf(c));
  return Work(std::move(update));
}

}  // namespace foreshard::exec
