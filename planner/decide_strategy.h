// Which library shards the model, and what it is told: from names to what the lowering understands.
#pragma once

#include "planner/lower/step.h"
#include "planner/plan.h"

namespace foreshard {

// Fills the strategy and the options of its library, and how ranks share it (shard_ranks,
// replicas). kInvalidArgument for unknown names and for what PyTorch refuses.
Status DecideStrategy(const PlanRequest& request, StepDecisions& decisions);

}  // namespace foreshard
