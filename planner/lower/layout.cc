#include "planner/lower/layout.h"

#include <algorithm>

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

int64_t LocalNumel(const Dims& shape, int dim, int ranks, int rank) {
  const int64_t slices = SlicesPerRank(shape, dim, ranks);
  return std::clamp<int64_t>(shape[dim] - slices * rank, 0, slices) * SliceSize(shape, dim);
}

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
  std::vector<UnitLayout> layouts;
  for (size_t u = 0; u < units.size(); ++u) {
    UnitLayout layout;
    builder.SetUnit(static_cast<int>(u));
    for (int index : units[u].parameters) {
      const int dim = place.shard_dims.empty() ? 0 : place.shard_dims[index];
      ShardedParameter s = Shard(graph.parameters[index], index, dim, place.ranks);
      s.shard = builder.AddResident(s.padded_numel * SizeOf(place.original), pb::SHARDED_PARAM,
                                    place.stream);
      if (place.on_host) builder.buffer(s.shard).set_host(true);
      pb::Parameter& out = *plan.mutable_parameters(index);
      if (dim > 0) out.set_shard_dim(dim);
      out.set_unit(static_cast<int>(u));
      out.set_sharded_buffer(s.shard);
      out.set_shard_offset(layout.padded_numel);
      out.set_padded_shard_numel(s.padded_numel);
      layout.numel += s.numel;
      layout.padded_numel += s.padded_numel;
      if (!s.frozen) layout.grad_padded_numel += s.padded_numel;
      layout.parameters.push_back(s);
    }
    if (units[u].parameters.empty()) {  // an empty root gathers nothing
      layouts.push_back(std::move(layout));
      continue;
    }
    pb::Unit& out = *plan.add_units();
    out.set_name(units[u].name);
    for (int m : units[u].modules) out.add_modules(m);
    for (int p : units[u].parameters) out.add_parameters(p);
    out.set_numel(layout.numel);
    out.set_padded_shard_numel(layout.padded_numel);
    out.set_grad_padded_shard_numel(layout.grad_padded_numel);
    out.set_gathered_numel(layout.padded_numel * place.ranks);
    layouts.push_back(std::move(layout));
  }
  builder.SetUnit(-1);
  return layouts;
}

}  // namespace foreshard
