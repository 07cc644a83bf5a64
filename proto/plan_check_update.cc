// What ops of clipping and the optimizer say of themselves: rules clip and optimizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/oplib/optimizer_state.h"
#include "proto/plan_check_op.h"

namespace foreshard::plan_check {
namespace {

bool IsKnown(pb::OptimizerKind kind) {
  return kind == pb::ADAMW || kind == pb::SGD || kind == pb::ADAMW_8BIT;
}

std::vector<const pb::Parameter*> Trainable(const pb::Plan& plan) {
  std::vector<const pb::Parameter*> trainable;
  for (const pb::Parameter& p : plan.parameters()) {
    if (!p.frozen()) trainable.push_back(&p);
  }
  return trainable;
}

// Bytes of each buffer of a parameter's state. REQUIRES: the kind is known.
std::vector<int64_t> StateOf(pb::OptimizerKind kind, const pb::Parameter& p, int64_t element) {
  const int64_t moment = oplib::MomentBytes(kind, p.padded_shard_numel(), element);
  if (kind == pb::SGD) return {moment};
  return {SizeOf(DType::kFp32), moment, moment};
}

// A buffer that one rank has and all others have nothing of.
bool IsOnlyOn(int owner, int64_t bytes, const pb::Buffer& buffer, int ranks) {
  if (owner != 0) {
    return buffer.bytes() == 0 && buffer.others_size() == (bytes > 0 ? 1 : 0) &&
           (bytes == 0 || (buffer.others(0).rank() == owner && buffer.others(0).bytes() == bytes));
  }
  const bool only =
      std::ranges::all_of(buffer.others(), [](const auto& o) { return o.bytes() == 0; });
  return buffer.bytes() == bytes && only && buffer.others_size() == (bytes > 0 ? ranks - 1 : 0);
}

// Rule owner: state is where the update is.
Status CheckStateOfOwner(const OpContext& c, int32_t buffer, int owner, int64_t bytes) {
  if (IsOnlyOn(owner, bytes, c.buffer(buffer), c.plan.mesh().world_size())) return OkStatus();
  return c.Broken("owner", fmt::format("buffer {} is not {} bytes on rank {}, which updates the "
                                       "parameter, and none on others",
                                       buffer, bytes, owner));
}

// One for each trainable parameter, the same in all updates.
Status CheckOwners(const OpContext& c) {
  const auto& owners = c.op().optimizer_step().owners();
  const auto& others = OwnersIn(c.plan);
  if (!std::equal(owners.begin(), owners.end(), others.begin(), others.end())) {
    return c.Broken("owner", "divides the parameters otherwise than another update");
  }
  const int ranks = c.plan.mesh().replicate_size();
  const bool known =
      std::ranges::all_of(owners, [&](int32_t owner) { return InTable(owner, ranks); });
  const bool complete =
      owners.empty() || owners.size() == static_cast<int>(Trainable(c.plan).size());
  if (known && complete && (owners.empty() || c.plan.mesh().shard_size() == 1)) return OkStatus();
  return c.Broken("owner",
                  fmt::format("does not name one of {} ranks for each trainable parameter", ranks));
}

// Elements that a rank updates: with owners the one with most.
int64_t UpdatedElems(const pb::Plan& plan, const google::protobuf::RepeatedField<int32_t>& owners) {
  std::vector<int64_t> elems(static_cast<size_t>(owners.empty() ? 1 : plan.mesh().world_size()));
  int i = 0;
  for (const pb::Parameter* p : Trainable(plan)) {
    elems[static_cast<size_t>(owners.empty() ? 0 : owners[i++])] += p->padded_shard_numel();
  }
  return std::ranges::max(elems);
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
  int parameter = 0;
  for (const pb::Parameter* p : Trainable(c.plan)) {
    const int owner = parameter < owners.size() ? owners[parameter] : -1;
    ++parameter;
    for (const int64_t bytes : StateOf(kind, *p, element)) {
      if (owner >= 0 && i < c.op().out_size()) {
        RETURN_IF_ERROR(CheckStateOfOwner(c, c.op().out(i++), owner, bytes));
        continue;
      }
      if (i < c.op().out_size() && c.buffer(c.op().out(i)).bytes() != bytes) {
        return c.Broken("optimizer", fmt::format("buffer {} of parameter \"{}\" has {} bytes, "
                                                 "expected {}",
                                                 c.op().out(i), p->path(),
                                                 c.buffer(c.op().out(i)).bytes(), bytes));
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
  // Of each parameter, the shard and its state.
  const pb::OptimizerStep& step = c.op().optimizer_step();
  const int buffers = step.kind() == pb::SGD ? 1 + oplib::MomentCount(pb::SGD, step.momentum()) : 4;
  const int outputs = buffers * static_cast<int>(Trainable(c.plan).size());
  const int64_t elems = UpdatedElems(c.plan, step.owners());
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

// A norm for each parameter, then all of them, with several ranks twice.
Status CheckNorms(const OpContext& c) {
  RETURN_IF_ERROR(CheckClips(c));
  const auto tensors = static_cast<int64_t>(Trainable(c.plan).size());
  std::vector<int64_t> elems(tensors, 1);
  elems.push_back(tensors);
  if (c.plan.mesh().shard_size() > 1) elems.push_back(tensors);
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
