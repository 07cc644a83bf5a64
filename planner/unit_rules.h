// What a request says about single units and parameters, resolved against the model.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/lower/behaviour.h"
#include "planner/lower/sharding_rules.h"
#include "planner/plan.h"
#include "planner/wrap.h"

namespace foreshard {

// One row for each unit: what becomes of it after forward, what it gathers ahead, whether backward
// gathers it. kInvalidArgument for numbers of ranks that do not divide the shard group and for
// modules that are no units.
StatusOr<std::vector<UnitRules>> DecideUnits(const ModelGraph& graph,
                                             const std::vector<Unit>& units,
                                             const PlanRequest& request, const Behaviour& behaviour,
                                             int shard_ranks);

// Along which dimension each parameter is cut; empty when all are along the first. kInvalidArgument
// when the ranks do not divide another dimension, or a unit is resharded to fewer ranks.
StatusOr<std::vector<int>> DecideShardDims(const ModelGraph& graph,
                                           const std::vector<UnitRules>& units,
                                           const PlanRequest& request, int shard_ranks);

// kInvalidArgument for a unit that fewer ranks keep after forward and that has a parameter which is
// not cut along the first dimension.
Status CheckPartsAreShards(const std::vector<Unit>& units, const std::vector<UnitRules>& rules,
                           const std::vector<int>& shard_dims);

}  // namespace foreshard
