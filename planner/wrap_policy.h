// Wrap policies: which calls of fully_shard, or which instances of FullyShardedDataParallel, a
// choice stands for.
#pragma once

#include <string>
#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/plan.h"

namespace foreshard {

// The calls that the request's policy makes on this model, in order; the model itself comes last.
// Modules whose parameters are all in others are left out: wrapping them gathers nothing.
// kInvalidArgument when the policy is unknown, matches nothing, or has arguments that it does not
// take.
StatusOr<std::vector<WrapRequest>> WrapCalls(const ModelGraph& graph,
                                             const std::string& block_class,
                                             const PlanRequest& request);

}  // namespace foreshard
