// Where the optimizer finds the parts of each parameter.
#include <fmt/format.h>

#include <map>

#include "exec/prepare_parts.h"

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

struct Place {
  int gradient = -1;
  int64_t from = 0;
};

// Of every trainable parameter, where in which gradient it stands.
StatusOr<std::map<int, Place>> FindGradients(const pb::Plan& plan, const ShardMap& shards,
                                             std::span<const int64_t> bytes, const pb::Op& op) {
  const auto parameters = ParametersOfGradients(plan, shards);
  std::map<int, Place> places;
  for (int i = 0; i < op.in_size(); ++i) {
    const auto held = parameters.find(op.in(i));
    if (held == parameters.end()) {
      return InvalidPlan(fmt::format("reads buffer {}, which no reduction writes", op.in(i)));
    }
    int64_t offset = 0;
    DType dtype = DType::kFp32;
    const bool is_local = plan.buffers(op.in(i)).host();  // of one parameter, without padding
    for (const int p : held->second) {
      places[p] = {i, offset};
      offset += is_local ? shards.local_numel(p) : shards.padded_numel(p);
      dtype = shards.dtype(p);
    }
    if (offset * SizeOf(dtype) == bytes[op.in(i)]) continue;
    return InvalidPlan(fmt::format("gradient buffer {} holds {} bytes, its parameters take {}",
                                   op.in(i), bytes[op.in(i)], offset * SizeOf(dtype)));
  }
  return places;
}

}  // namespace

StatusOr<UpdateParameters> UpdateOf(const pb::Plan& plan, const ShardMap& shards,
                                    std::span<const int64_t> buffer_bytes, const pb::Op& op) {
  const pb::OptimizerStep& step = op.optimizer_step();
  UpdateParameters update;
  update.rule = step.kind() == pb::SGD ? UpdateRule::kSgd : UpdateRule::kAdamW;
  update.keeps_roots = !ScratchOf(op).empty();
  update.learning_rate = step.learning_rate();
  update.beta1 = step.beta1();
  update.beta2 = step.beta2();
  update.eps = step.eps();
  update.weight_decay = step.weight_decay();
  update.momentum = step.momentum();
  ASSIGN_OR_RETURN(const auto places, FindGradients(plan, shards, buffer_bytes, op));
  const std::vector<int> trainable = shards.Trainable();
  const int count = static_cast<int>(trainable.size());
  const int each = (op.out_size() - count) / std::max(count, 1);
  for (int i = 0; i < count; ++i) {
    const int p = trainable[i];
    const auto place = places.find(p);
    if (place == places.end()) {
      return InvalidPlan(fmt::format("has no gradient for {}", plan.parameters(p).path()));
    }
    UpdateParameters::Slice slice;
    slice.dtype = shards.dtype(p);
    slice.numel = shards.local_numel(p);
    slice.gradient = place->second.gradient;
    slice.gradient_from = place->second.from;
    slice.parameter = i;
    if (each > 0) slice.state = count + i * each;
    update.slices.push_back(slice);
  }
  return update;
}

}  // namespace foreshard::exec
