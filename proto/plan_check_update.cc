// What ops of clipping and the optimizer say of themselves: rules clip and optimizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "proto/oplib/optimizer_state.h"
#include "proto/plan_check_op.h"

namespace foreshard::plan_check {
namespace {

bool IsKnown(pb::OptimizerKind kind) {
  return kind == pb::ADAMW || kind == pb::SGD || kind == pb::ADAMW_8BIT;
}

// Rank 0's part of a parameter in a flat one, of which it has the first shard.
int64_t FirstPart(const pb::Parameter& p, const pb::Unit& unit) {
  const int64_t room = std::max<int64_t>(unit.padded_shard_numel() - p.flat_offset(), 0);
  return std::min(Numel(p.shape()).value(), room);
}

// Bytes of each buffer of a tensor's state on rank 0, which has none for a part that it has nothing
// of. REQUIRES: the kind is known.
std::vector<int64_t> StateOf(pb::OptimizerKind kind, const OptimizerTensor& t, int64_t element) {
  const int64_t moment = oplib::MomentBytes(kind, t.numel, element);
  if (kind == pb::SGD) return {moment};
  const bool none = t.is_part && t.numel == 0;
  return {none ? 0 : SizeOf(DType::kFp32), moment, moment};
}

Status CheckInit(const OpContext& c) {
  const pb::OptimizerKind kind = c.op().optimizer_init().kind();
  if (!IsKnown(kind)) {
    return c.Broken("optimizer", "creates the state of an unknown optimizer");
  }
  ASSIGN_OR_RETURN(const int64_t element,
                   SizeIn(c, 1, oplib::MomentDType(c.plan, c.op().optimizer_init().dtype())));
  const auto& owners = OwnersIn(c.plan);
  int i = 0;
  int tensor = 0;
  for (const OptimizerTensor& t : OptimizerTensors(c.plan)) {
    const int owner = tensor < owners.size() ? owners[tensor] : -1;
    ++tensor;
    for (const int64_t bytes : StateOf(kind, t, element)) {
      if (owner >= 0 && i < c.op().out_size()) {
        RETURN_IF_ERROR(CheckStateOfOwner(c, c.op().out(i++), owner, bytes));
        continue;
      }
      if (i < c.op().out_size() && c.buffer(c.op().out(i)).bytes() != bytes) {
        return c.Broken("optimizer",
                        fmt::format("buffer {} of parameter \"{}\" has {} bytes, "
                                    "expected {}",
                                    c.op().out(i), t.name, c.buffer(c.op().out(i)).bytes(), bytes));
      }
      ++i;
    }
  }
  if (i == c.op().out_size()) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("creates {} buffers of state, expected {}", c.op().out_size(), i));
}

// Kind, implementation and numbers are possible.
Status CheckNumbers(const OpContext& c) {
  const pb::OptimizerStep& step = c.op().optimizer_step();
  const bool loops = step.impl() == pb::LOOP;
  const bool known =
      IsKnown(step.kind()) && (loops || (step.kind() != pb::ADAMW_8BIT &&
                                         (step.impl() == pb::FUSED || step.impl() == pb::FOREACH)));
  if (!known) return c.Broken("optimizer", "the optimizer or its implementation is unknown");
  for (const double number : {step.learning_rate(), step.beta1(), step.beta2(), step.eps(),
                              step.weight_decay(), step.momentum()}) {
    if (std::isfinite(number) && number >= 0) continue;
    return c.Broken("optimizer", fmt::format("is told {}, expected numbers, 0 or more", number));
  }
  RETURN_IF_ERROR(SizeIn(c, 1, oplib::MomentDType(c.plan, step.dtype())).status());
  if (step.kind() == pb::SGD || step.momentum() == 0) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("has momentum {}, expected it of SGD alone", step.momentum()));
}

Status CheckStep(const OpContext& c) {
  RETURN_IF_ERROR(CheckNumbers(c));
  RETURN_IF_ERROR(CheckOwners(c));
  // Of each tensor its state, and the shards that they are parts of.
  const pb::OptimizerStep& step = c.op().optimizer_step();
  const int states = step.kind() == pb::SGD ? oplib::MomentCount(pb::SGD, step.momentum()) : 3;
  const int64_t elems = UpdatedElems(c);
  int outputs = 0;
  std::set<int32_t> shards;
  for (const OptimizerTensor& t : OptimizerTensors(c.plan)) {
    outputs += states + (shards.insert(t.shard).second ? 1 : 0);
  }
  if (step.elems() != elems) {
    return c.Broken("optimizer", fmt::format("updates {} elements, the trainable shards have {}",
                                             step.elems(), elems));
  }
  if (c.op().out_size() == outputs) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("writes {} buffers, expected {}", c.op().out_size(), outputs));
}

Status CheckClips(const OpContext& c) {
  if (c.op().phase() == pb::CLIP) return OkStatus();
  return c.Broken("clip", fmt::format("is in {}, expected CLIP", pb::Phase_Name(c.op().phase())));
}

// A norm for each tensor, then all of them, with several ranks twice, or of flat parameters the
// square of their norm.
Status CheckNorms(const OpContext& c) {
  RETURN_IF_ERROR(CheckClips(c));
  const auto tensors = static_cast<int64_t>(OptimizerTensors(c.plan).size());
  const bool flat = std::ranges::any_of(c.plan.units(), &pb::Unit::has_flat);
  std::vector<int64_t> elems(tensors, 1);
  elems.push_back(tensors);
  if (c.plan.mesh().shard_size() > 1) elems.push_back(flat ? 1 : tensors);
  if (c.op().out_size() != static_cast<int>(elems.size())) {
    return c.Broken("clip",
                    fmt::format("writes {} buffers, expected {}", c.op().out_size(), elems.size()));
  }
  for (int i = 0; i < c.op().out_size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, elems[i], c.plan.decisions().original_dtype()));
    RETURN_IF_ERROR(Whole(c, c.op().out(i), bytes));
  }
  return OkStatus();
}

Status CheckScale(const OpContext& c) {
  RETURN_IF_ERROR(CheckClips(c));
  const double max_norm = c.op().clip_scale().max_norm();
  if (!std::isfinite(max_norm) || max_norm <= 0) {
    return c.Broken("clip", fmt::format("clips to {}, expected a finite norm above 0", max_norm));
  }
  bool in_place = c.op().in_size() == c.op().out_size() + 1;
  for (int i = 0; in_place && i < c.op().out_size(); ++i) in_place = c.op().in(i) == c.op().out(i);
  if (in_place) return OkStatus();
  return c.Broken("clip", "does not write the gradients that it reads before the squares");
}

}  // namespace

std::vector<OptimizerTensor> OptimizerTensors(const pb::Plan& plan) {
  std::vector<OptimizerTensor> tensors;
  for (const pb::Unit& unit : plan.units()) {
    if (!unit.has_flat() || unit.flat().by_parameter() || unit.flat().frozen()) continue;
    tensors.push_back({unit.name(), unit.flat().sharded_buffer(), unit.padded_shard_numel()});
  }
  for (const pb::Parameter& p : plan.parameters()) {
    const pb::Unit& unit = plan.units(p.unit());
    if (p.frozen() || (unit.has_flat() && !unit.flat().by_parameter())) continue;
    const bool part = unit.has_flat();
    tensors.push_back(
        {p.path(), p.sharded_buffer(), part ? FirstPart(p, unit) : p.padded_shard_numel(), part});
  }
  return tensors;
}

Status CheckUpdate(const OpContext& c) {
  switch (c.op().kind_case()) {
    case pb::Op::kOptimizerInit:
      return CheckInit(c);
    case pb::Op::kOptimizerStep:
      return CheckStep(c);
    case pb::Op::kClipNorms:
      return CheckNorms(c);
    default:
      return CheckScale(c);
  }
}

}  // namespace foreshard::plan_check
