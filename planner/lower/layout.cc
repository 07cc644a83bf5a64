#include "planner/lower/layout.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace foreshard {
namespace {

int64_t SliceSize(const Dims& shape, int dim) { return Numel(shape) / shape[dim]; }
int64_t SlicesPerRank(const Dims& shape, int dim, int ranks) {
  return (shape[dim] + ranks - 1) / ranks;
}

ShardedParameter Shard(const GraphParameter& p, int index, int dim, int ranks) {
  ShardedParameter s;
  s.parameter = index;
  s.numel = Numel(p.shape);
  s.shard_dim = dim;
  s.padded_numel = SlicesPerRank(p.shape, dim, ranks) * SliceSize(p.shape, dim);
  s.local_numel = LocalNumel(p.shape, dim, ranks, 0);
  s.frozen = p.frozen;
  return s;
}

}  // namespace

int64_t FlatAlignment(DType compute) {
  constexpr int64_t kAlignedBytes = 16;
  return kAlignedBytes / SizeOf(compute);
}

int64_t LocalNumel(const Dims& shape, int dim, int ranks, int rank) {
  const int64_t slices = SlicesPerRank(shape, dim, ranks);
  return std::clamp<int64_t>(shape[dim] - slices * rank, 0, slices) * SliceSize(shape, dim);
}

int64_t OptimizerTensor::NumelOn(int rank) const {
  const int64_t first = std::max(begin, each * rank);
  const int64_t last = std::min(end, each * (rank + 1));
  return std::max<int64_t>(last - first, 0) * size;
}

namespace {

class LayoutMaker {
 public:
  LayoutMaker(const ModelGraph& graph, const ShardingPlace& place, PlanBuilder& builder)
      : graph_(graph), place_(place), builder_(builder) {}

  UnitLayout Make(const Unit& unit, int index) {
    builder_.SetUnit(index);
    UnitLayout layout = place_.flat ? Flatten(unit, index) : ShardEach(unit, index);
    builder_.SetUnit(-1);
    if (unit.parameters.empty()) return layout;  // an empty root gathers nothing
    pb::Unit& out = *builder_.plan().add_units();
    out.set_name(unit.name);
    for (int m : unit.modules) out.add_modules(m);
    for (int p : unit.parameters) out.add_parameters(p);
    out.set_numel(layout.numel);
    out.set_padded_shard_numel(layout.padded_numel);
    out.set_grad_padded_shard_numel(layout.grad_padded_numel);
    out.set_gathered_numel(layout.padded_numel * place_.ranks);
    if (layout.flat) Fill(*layout.flat, *out.mutable_flat());
    return layout;
  }

 private:
  BufferId AddShard(int64_t numel) {
    const BufferId shard =
        builder_.AddResident(numel * SizeOf(place_.original), pb::SHARDED_PARAM, place_.stream);
    if (place_.on_host) builder_.buffer(shard).set_host(true);
    return shard;
  }

  UnitLayout ShardEach(const Unit& unit, int index) {
    UnitLayout layout;
    for (int p : unit.parameters) {
      const int dim = place_.shard_dims.empty() ? 0 : place_.shard_dims[p];
      ShardedParameter s = Shard(graph_.parameters[p], p, dim, place_.ranks);
      s.shard = AddShard(s.padded_numel);
      pb::Parameter& out = *builder_.plan().mutable_parameters(p);
      if (dim > 0) out.set_shard_dim(dim);
      out.set_unit(index);
      out.set_sharded_buffer(s.shard);
      out.set_shard_offset(layout.padded_numel);
      out.set_padded_shard_numel(s.padded_numel);
      layout.numel += s.numel;
      layout.padded_numel += s.padded_numel;
      if (!s.frozen) layout.grad_padded_numel += s.padded_numel;
      layout.parameters.push_back(s);
    }
    return layout;
  }

  UnitLayout Flatten(const Unit& unit, int index) {
    UnitLayout layout;
    if (unit.parameters.empty()) return layout;
    FlatLayout flat;
    for (int p : unit.parameters) {
      ShardedParameter s;
      s.parameter = p;
      s.numel = Numel(graph_.parameters[p].shape);
      s.frozen = graph_.parameters[p].frozen;
      s.flat_offset = RoundUp(flat.numel, place_.flat->aligned);
      flat.numel = s.flat_offset + s.numel;
      flat.frozen &= s.frozen;
      layout.numel += s.numel;
      layout.parameters.push_back(s);
    }
    flat.numel = RoundUp(flat.numel, place_.flat->multiple);
    layout.padded_numel = RoundUp(flat.numel, place_.ranks) / place_.ranks;
    if (!flat.frozen) layout.grad_padded_numel = layout.padded_numel;
    flat.shard = AddShard(layout.padded_numel);
    for (ShardedParameter& s : layout.parameters) {
      s.shard = flat.shard;
      pb::Parameter& out = *builder_.plan().mutable_parameters(s.parameter);
      out.set_unit(index);
      out.set_sharded_buffer(flat.shard);
      out.set_flat_offset(s.flat_offset);
    }
    layout.flat = flat;
    return layout;
  }

  void Fill(const FlatLayout& flat, pb::Flat& out) const {
    out.set_numel(flat.numel);
    out.set_sharded_buffer(flat.shard);
    out.set_by_parameter(place_.flat->by_parameter);
    out.set_frozen(flat.frozen);
  }

  const ModelGraph& graph_;
  const ShardingPlace& place_;
  PlanBuilder& builder_;
};

OptimizerTensor TensorOf(const pb::Plan& plan, const ShardedParameter& p, const UnitLayout& unit) {
  OptimizerTensor t;
  const pb::Parameter& row = plan.parameters(p.parameter);
  t.unit = row.unit();
  t.shard = p.shard;
  if (unit.flat) {
    t.begin = p.flat_offset;
    t.end = p.flat_offset + p.numel;
    t.each = unit.padded_numel;
    return t;
  }
  t.end = row.shape(p.shard_dim);
  t.size = p.numel / t.end;
  t.each = p.padded_numel / t.size;
  return t;
}

}  // namespace

std::vector<UnitLayout> LayOut(const ModelGraph& graph, const std::vector<Unit>& units,
                               const ShardingPlace& place, PlanBuilder& builder) {
  pb::Plan& plan = builder.plan();
  for (const GraphParameter& p : graph.parameters) {
    pb::Parameter& out = *plan.add_parameters();
    out.set_path(p.path);
    for (int64_t d : p.shape) out.add_shape(d);
    out.set_dtype(ToProto(place.original));
    out.set_frozen(p.frozen);
    for (const std::string& path : p.shared_with) out.add_shared_with(path);
  }
  LayoutMaker maker(graph, place, builder);
  std::vector<UnitLayout> layouts;
  for (size_t u = 0; u < units.size(); ++u) {
    layouts.push_back(maker.Make(units[u], static_cast<int>(u)));
  }
  return layouts;
}

std::vector<OptimizerTensor> OptimizerTensors(const pb::Plan& plan,
                                              const std::vector<UnitLayout>& layouts) {
  std::vector<OptimizerTensor> tensors;
  std::vector<std::pair<int, OptimizerTensor>> by_parameter;
  for (size_t u = 0; u < layouts.size(); ++u) {
    const UnitLayout& layout = layouts[u];
    if (layout.flat && !plan.units(static_cast<int>(u)).flat().by_parameter()) {
      if (layout.flat->frozen) continue;
      tensors.push_back({.unit = static_cast<int>(u),
                         .shard = layout.flat->shard,
                         .end = std::numeric_limits<int64_t>::max(),
                         .each = layout.padded_numel});
      continue;
    }
    for (const ShardedParameter& p : layout.parameters) {
      if (!p.frozen) by_parameter.emplace_back(p.parameter, TensorOf(plan, p, layout));
    }
  }
  std::sort(by_parameter.begin(), by_parameter.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [parameter, tensor] : by_parameter) tensors.push_back(tensor);
  return tensors;
}

}  // namespace foreshard
