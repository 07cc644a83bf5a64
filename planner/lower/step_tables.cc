#include "planner/lower/step_tables.h"

#include <map>
#include <string>
#include <utility>

#include "proto/strategy.h"

namespace foreshard {
namespace {

Streams AddStreams(const StepDecisions& d, PlanBuilder& builder) {
  Streams s;
  s.compute = builder.AddStream("compute", pb::Stream::COMPUTE);
  if (IsReplicated(d.strategy)) {
    s.all_reduce = builder.AddStream("all_reduce", pb::Stream::ALL_REDUCE);
    return s;
  }
  const bool flat = IsFsdp1(d.strategy);
  s.copy_in =
      builder.AddStream(flat ? "pre_unshard" : "gather_copy_in", pb::Stream::GATHER_COPY_IN);
  s.gather = builder.AddStream(flat ? "unshard" : "gather", pb::Stream::GATHER);
  s.reduce = builder.AddStream(flat ? "post_backward" : "reduce", pb::Stream::REDUCE);
  const bool replicates = d.replicas > 1 && d.strategy != pb::NO_SHARD;
  if (replicates || IsHybrid(d.strategy)) {
    s.all_reduce = builder.AddStream("all_reduce", pb::Stream::ALL_REDUCE);
  }
  if (d.offloads) s.host = builder.AddStream("host", pb::Stream::HOST);
  return s;
}

int AddGroup(std::string name, int size, int stride, PlanBuilder& builder) {
  pb::Group& group = *builder.plan().add_groups();
  group.set_name(std::move(name));
  group.set_size(size);
  group.set_stride(stride);
  return builder.plan().groups_size() - 1;
}

void AddGroups(const StepDecisions& d, PlanBuilder& builder, StepTables& t) {
  if (IsReplicated(d.strategy)) {
    t.replicate_group = AddGroup("replicate", d.replicas, 1, builder);
    return;
  }
  t.gather_group = t.reduce_group = AddGroup("shard", d.shard_ranks, 1, builder);
  if (d.separate_reduce_group) t.reduce_group = AddGroup("reduce", d.shard_ranks, 1, builder);
  if (d.replicas > 1 || d.strategy == pb::NO_SHARD || IsHybrid(d.strategy)) {
    t.replicate_group = AddGroup("replicate", d.replicas, d.shard_ranks, builder);
  }
  std::map<int, int> by_size;  // groups that units are resharded to
  for (UnitRules& rules : t.units) {
    const int ranks = rules.reshard_to;
    if (ranks <= 1) continue;
    const auto [it, fresh] = by_size.try_emplace(ranks, 0);
    if (fresh) it->second = AddGroup("shard_" + std::to_string(ranks), ranks, 1, builder);
    rules.reshard_group = it->second;
  }
}

// Shards of parameters that the optimizer sees need no padding.
std::optional<FlatRule> FlatRuleOf(const StepDecisions& d) {
  if (!IsFsdp1(d.strategy)) return std::nullopt;
  FlatRule rule;
  if (!d.fsdp1.use_orig_params()) return rule;
  rule.by_parameter = true;
  rule.aligned = FlatAlignment(d.forward.compute);
  rule.multiple = d.strategy == pb::NO_SHARD ? d.replicas : d.shard_ranks;
  return rule;
}

}  // namespace

StepTables AddTables(const ModelGraph& graph, const std::vector<Unit>& units,
                     const StepDecisions& decisions, PlanBuilder& builder) {
  StepTables tables;
  tables.streams = AddStreams(decisions, builder);
  for (const GraphModule& m : graph.modules) {
    pb::ModuleInfo& info = *builder.plan().add_modules();
    info.set_path(m.path);
    info.set_class_(m.class_name);
  }
  builder.SetModuleUnits(UnitOfModules(graph, units));
  tables.units = decisions.units;
  AddGroups(decisions, builder, tables);
  return tables;
}

void FillUnits(const std::vector<Unit>& units, const StepTables& tables, PlanBuilder& builder) {
  int row = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].parameters.empty()) continue;
    pb::Unit& unit = *builder.plan().mutable_units(row++);
    unit.set_reshard_after_forward(tables.units[u].reshard_to != 1);
    if (tables.units[u].reshard_to > 1) unit.set_reshard_to(tables.units[u].reshard_to);
  }
}

ShardingPlace PlaceOfShards(const StepDecisions& d, const StepTables& t) {
  ShardingPlace place;
  place.ranks = d.shard_ranks;
  place.original = d.original;
  place.stream = t.streams.compute;
  place.on_host = d.offloads;
  place.shard_dims = d.shard_dims;
  place.flat = FlatRuleOf(d);
  return place;
}

UpdatePlace PlaceOfUpdate(const StepDecisions& d, const StepTables& t) {
  UpdatePlace place;
  place.original = d.original;
  place.stream = d.offloads ? t.streams.host : t.streams.compute;
  place.on_host = d.offloads;
  place.ranks = d.shard_ranks;
  place.group = t.gather_group;
  place.partitioned = d.strategy == pb::ZERO1;
  place.broadcast = t.streams.all_reduce;
  place.replicate_group = t.replicate_group;
  return place;
}

Sharding ShardingOf(const StepDecisions& d, const StepTables& t) {
  Sharding s;
  s.behaviour = d.behaviour;
  s.streams = t.streams;
  s.ranks = d.shard_ranks;
  s.replicas = d.replicas;
  s.gather_group = t.gather_group;
  s.reduce_group = t.reduce_group;
  s.replicate_group = t.replicate_group;
  s.original = d.original;
  s.compute = d.forward.compute;
  s.reduce = d.reduce;
  s.reduce_inputs = d.reduce_inputs;
  s.divide_factor = d.divide_factor;
  s.force_sum = d.force_sum;
  s.offloads = d.offloads;
  s.casts_root_inputs = d.casts_root_inputs;
  return s;
}

}  // namespace foreshard
