// The record of a plan: its programs, walked as a host issues them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "proto/base/dtype.h"
#include "proto/oplib/oplib.h"
#include "tests/golden/golden_record.h"

namespace foreshard::golden {

std::string PhaseName(pb::Phase phase) {
  switch (phase) {
    case pb::FORWARD:
      return "fwd";
    case pb::BACKWARD:
      return "bwd";
    case pb::OPTIMIZER:
      return "opt";
    default:
      return "zero";
  }
}

namespace {

std::string DTypeName(pb::DType dtype) { return std::string(Name(static_cast<DType>(dtype))); }

std::string ReasonName(pb::AllGather::Reason reason) {
  switch (reason) {
    case pb::AllGather::REASON_FORWARD:
      return "forward";
    case pb::AllGather::REASON_BACKWARD:
      return "backward";
    case pb::AllGather::PREFETCH_BACKWARD_IMPLICIT:
      return "prefetch_backward_implicit";
    default:
      return "?";
  }
}

void ForEachOp(const pb::Plan& plan, const pb::Program& program,
               const std::function<void(const pb::Op&)>& visit) {
  for (const pb::SegmentUse& use : program.uses()) {
    for (int i = 0; i < use.repeat(); ++i) {
      for (const pb::Op& op : plan.segments(use.segment()).ops()) visit(op);
    }
  }
}

Event GatherEvent(const pb::Plan& plan, const pb::AllGather& op) {
  Event event;
  event.kind = "all_gather";
  event.elems_in = op.elems_in();
  event.elems_out = op.elems_out();
  event.dtype = DTypeName(op.dtype());
  event.group = plan.groups(op.group()).size();
  event.how = ReasonName(op.reason());
  return event;
}

Event ReduceEvent(const pb::Plan& plan, const pb::ReduceScatter& op) {
  Event event;
  event.kind = "reduce_scatter";
  event.elems_in = op.elems_in();
  event.elems_out = op.elems_out();
  event.dtype = DTypeName(op.dtype());
  event.group = plan.groups(op.group()).size();
  event.how = pb::ReduceScatter::Reduction_Name(op.reduction());
  return event;
}

// In a group of one rank the casts and copies of a unit's parameters are one event.
Event LocalCopyOut(int64_t elems, pb::DType dtype) {
  return {"", "copy_out", "", elems, elems, "", DTypeName(dtype), 0, ""};
}

// Kind and sizes; an empty kind when the traces have no event for the op.
Event KindOf(const pb::Plan& plan, const pb::Op& op) {
  switch (op.kind_case()) {
    case pb::Op::kLocalGather:
      return LocalCopyOut(op.local_gather().elems(), op.local_gather().dtype());
    case pb::Op::kCastShard:
      if (plan.mesh().shard_size() == 1) return LocalCopyOut(0, op.cast_shard().to());
      return {"",
              "cast_shard",
              "",
              op.cast_shard().elems(),
              op.cast_shard().elems(),
              DTypeName(op.cast_shard().from()),
              DTypeName(op.cast_shard().to()),
              0,
              ""};
    case pb::Op::kAllGather:
      return GatherEvent(plan, op.all_gather());
    case pb::Op::kCopyOut:
      return {"",
              "copy_out",
              "",
              op.copy_out().elems(),
              op.copy_out().elems(),
              "",
              DTypeName(op.copy_out().dtype()),
              0,
              ""};
    case pb::Op::kReshard:
      return {"", "reshard", "", 0, 0, "", "", 0, ""};
    case pb::Op::kReduceCopyIn:
      return {"",
              "rs_copy_in",
              "",
              op.reduce_copy_in().elems_in(),
              op.reduce_copy_in().elems_out(),
              DTypeName(op.reduce_copy_in().from(0)),
              DTypeName(op.reduce_copy_in().to()),
              0,
              ""};
    case pb::Op::kReduceScatter:
      return ReduceEvent(plan, op.reduce_scatter());
    case pb::Op::kGradFinalize:
      return {"",
              "grad_finalize",
              "",
              0,
              0,
              DTypeName(op.grad_finalize().from()),
              DTypeName(op.grad_finalize().to()),
              0,
              ""};
    default:
      return {};
  }
}

std::vector<Event> Events(const pb::Plan& plan, const pb::Program& program) {
  std::vector<Event> events;
  bool copying = false;  // one rank is in a unit's copies
  ForEachOp(plan, program, [&](const pb::Op& op) {
    Event event = EventOf(plan, op);
    const bool local = event.kind == "copy_out" && !op.has_copy_out();
    if (local && copying && events.back().unit == event.unit) {
      events.back().elems_in += event.elems_in;
      events.back().elems_out += event.elems_out;
    } else if (!event.kind.empty()) {
      events.push_back(std::move(event));
    }
    copying = local;
  });
  return events;
}

Lines UnitLines(const pb::Plan& plan) {
  Lines lines;
  for (const pb::Unit& unit : plan.units()) {
    lines.push_back(Line(
        UnitLine{unit.name(), unit.numel(), unit.padded_shard_numel(), unit.gathered_numel()}));
    for (const int32_t index : unit.parameters()) {
      const pb::Parameter& p = plan.parameters(index);
      lines.push_back(Line(ParameterLine{p.path(),
                                         {p.shape().begin(), p.shape().end()},
                                         p.padded_shard_numel(),
                                         {p.shared_with().begin(), p.shared_with().end()}}));
    }
  }
  return lines;
}

// "aten::add.Tensor", "aten.mm.default" -> "add.Tensor", "mm"
std::string ShortName(std::string_view aten) {
  for (const std::string_view prefix : {"aten::", "aten."}) {
    if (aten.starts_with(prefix)) aten.remove_prefix(prefix.size());
  }
  constexpr std::string_view kDefault = ".default";
  if (aten.ends_with(kDefault)) aten.remove_suffix(kDefault.size());
  return std::string(aten);
}

// "model.layers.7.mlp" -> "model.layers.{i}.mlp"
std::string FoldLayer(std::string module) {
  const LayerIndex layer = FindLayer(module);
  return layer.length == 0 ? module : module.replace(layer.at, layer.length, "{i}");
}

// Follows which op made each activation that is alive.
class SavedWalk {
 public:
  SavedWalk(const pb::Plan& plan, bool fold_layers) : plan_(plan), fold_layers_(fold_layers) {}

  void Run(const pb::Op& op) {
    for (const int32_t buffer : op.allocs()) {
      if (plan_.buffers(buffer).category() == pb::ACTIVATION) alive_[buffer] = Made(op, buffer);
    }
    for (const int32_t buffer : op.frees()) alive_.erase(buffer);
  }

  std::vector<SavedTensor> alive() const {
    std::vector<SavedTensor> tensors;
    for (const auto& [buffer, tensor] : alive_) tensors.push_back(tensor);
    return tensors;
  }

 private:
  SavedTensor Made(const pb::Op& op, int32_t buffer) const {
    SavedTensor tensor;
    tensor.bytes = plan_.buffers(buffer).bytes();
    if (op.has_module()) tensor.module = plan_.modules(op.module()).path();
    if (fold_layers_) tensor.module = FoldLayer(tensor.module);
    if (!op.has_compute()) return tensor;
    const pb::Kernel& kernel = plan_.kernels(op.compute().kernel());
    tensor.op = ShortName(oplib::Find(kernel.name())->aten);
    const auto out = std::find(op.out().begin(), op.out().end(), buffer);
    if (out == op.out().end()) return tensor;
    const pb::TensorType& type = kernel.results(static_cast<int>(out - op.out().begin()));
    tensor.shape = {type.shape().begin(), type.shape().end()};
    tensor.dtype = DTypeName(type.dtype());
    return tensor;
  }

  const pb::Plan& plan_;
  bool fold_layers_;
  std::map<int32_t, SavedTensor> alive_;
};

Lines Saved(const pb::Plan& plan, bool fold_layers) {
  int forward_ops = 0;
  ForEachOp(plan, plan.programs(1),
            [&](const pb::Op& op) { forward_ops += op.phase() == pb::FORWARD; });
  SavedWalk walk(plan, fold_layers);
  ForEachOp(plan, plan.programs(0), [&](const pb::Op& op) { walk.Run(op); });
  ForEachOp(plan, plan.programs(1), [&](const pb::Op& op) {
    if (forward_ops > 0) walk.Run(op);
    forward_ops -= op.phase() == pb::FORWARD;
  });
  return SavedLines(walk.alive());
}

}  // namespace

Event EventOf(const pb::Plan& plan, const pb::Op& op) {
  Event event = KindOf(plan, op);
  event.phase = PhaseName(op.phase());
  event.unit = op.has_unit() ? plan.units(op.unit()).name() : "";
  return event;
}

Record RecordOf(const pb::Plan& plan, bool fold_layers) {
  Record record;
  record.units = UnitLines(plan);
  for (int i = 0; i < 2; ++i) record.events[i] = Events(plan, plan.programs(i));
  for (const Event& event : record.events[1]) record.kinds.push_back(KindLine(event));
  record.saved = Saved(plan, fold_layers);
  return record;
}

}  // namespace foreshard::golden
