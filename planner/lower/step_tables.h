// The plan's tables that a step's ops refer to: modules, streams, groups; and what the rules of
// sharding and the update are told of them.
#pragma once

#include <optional>
#include <vector>

#include "planner/lower/layout.h"
#include "planner/lower/optimizer.h"
#include "planner/lower/sharding_rules.h"
#include "planner/lower/step.h"

namespace foreshard {

struct StepTables {
  Streams streams;
  int gather_group = 0;
  int reduce_group = 0;
  int replicate_group = 0;
  std::vector<UnitRules> units;  // as decided, with the groups that units are resharded to
};

// Adds modules, streams and groups to the plan.
StepTables AddTables(const ModelGraph& graph, const std::vector<Unit>& units,
                     const StepDecisions& decisions, PlanBuilder& builder);

// Says in the plan what was decided for each unit that gathers anything. REQUIRES: they are laid
// out.
void FillUnits(const std::vector<Unit>& units, const StepTables& tables, PlanBuilder& builder);

ShardingPlace PlaceOfShards(const StepDecisions& decisions, const StepTables& tables);
UpdatePlace PlaceOfUpdate(const StepDecisions& decisions, const StepTables& tables);
Sharding ShardingOf(const StepDecisions& decisions, const StepTables& tables);

}  // namespace foreshard
