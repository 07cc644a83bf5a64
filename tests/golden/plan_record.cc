// The record of a plan: its units, its events, and what its forward saves.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "proto/oplib/oplib.h"
#include "tests/golden/golden_record.h"
#include "tests/golden/plan_events.h"

namespace foreshard::golden {
namespace {

std::string ReshardText(const pb::Unit& unit) {
  if (unit.reshard_to() != 0) return fmt::to_string(unit.reshard_to());
  return unit.reshard_after_forward() ? "true" : "false";
}

// What the rank has of a parameter, without padding.
std::vector<int64_t> LocalShape(const pb::Plan& plan, const pb::Parameter& p, int rank) {
  std::vector<int64_t> shape(p.shape().begin(), p.shape().end());
  const int ranks = plan.mesh().shard_size();
  int64_t& rows = shape[p.shard_dim()];
  const int64_t each = (rows + ranks - 1) / ranks;
  rows = std::clamp<int64_t>(rows - each * (rank % ranks), 0, each);
  return shape;
}

void AddFlatLines(const pb::Plan& plan, const pb::Unit& unit, int rank, Lines& lines) {
  const int64_t shard = unit.padded_shard_numel();
  const int64_t before = shard * (rank % plan.mesh().shard_size());
  const int64_t real = std::clamp<int64_t>(unit.flat().numel() - before, 0, shard);
  lines.push_back(
      Line(FlatUnitLine{unit.name(), unit.numel(), unit.flat().numel(), shard, shard - real,
                        plan.mesh().shard_size() > 1, !unit.flat().frozen()}));
  for (const int32_t index : unit.parameters()) {
    const pb::Parameter& p = plan.parameters(index);
    lines.push_back(Line(FlatParameterLine{p.path(),
                                           {p.shape().begin(), p.shape().end()},
                                           p.flat_offset(),
                                           !p.frozen(),
                                           {p.shared_with().begin(), p.shared_with().end()}}));
  }
}

Lines UnitLines(const pb::Plan& plan, const PlanRecordOptions& options) {
  Lines lines;
  for (const pb::Unit& unit : plan.units()) {
    if (unit.has_flat()) {
      AddFlatLines(plan, unit, options.rank, lines);
      continue;
    }
    lines.push_back(
        Line(UnitLine{unit.name(), unit.numel(), unit.padded_shard_numel(), unit.gathered_numel(),
                      options.whole_model ? ReshardText(unit) : ""}));
    for (const int32_t index : unit.parameters()) {
      const pb::Parameter& p = plan.parameters(index);
      lines.push_back(Line(ParameterLine{p.path(),
                                         {p.shape().begin(), p.shape().end()},
                                         LocalShape(plan, p, options.rank),
                                         p.padded_shard_numel(),
                                         p.shard_dim(),
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
    tensor.dtype = DTypeText(type.dtype());
    return tensor;
  }

  const pb::Plan& plan_;
  bool fold_layers_;
  std::map<int32_t, SavedTensor> alive_;
};

// Of the first micro-batch of the steady program.
Lines Saved(const pb::Plan& plan, bool fold_layers) {
  SavedWalk walk(plan, fold_layers);
  ForEachOp(plan, plan.programs(0), [&](const pb::Op& op, int) { walk.Run(op); });
  bool forward = true;
  ForEachOp(plan, plan.programs(1), [&](const pb::Op& op, int) {
    forward &= op.phase() == pb::FORWARD;
    if (forward) walk.Run(op);
  });
  return SavedLines(walk.alive());
}

}  // namespace

Record RecordOf(const pb::Plan& plan, const PlanRecordOptions& options) {
  Record record;
  record.units = UnitLines(plan, options);
  std::vector<std::vector<Event>> events = EventsOf(plan, options);
  std::move(events.begin(), events.end(), record.events);
  if (options.whole_model) record.kinds = record.events[1];
  for (const pb::Buffer& buffer : plan.buffers()) {
    if (buffer.category() != pb::TEMP) continue;
    record.largest_temporary = std::max(record.largest_temporary, buffer.bytes());
  }
  record.saved = Saved(plan, options.whole_model);
  return record;
}

}  // namespace foreshard::golden
