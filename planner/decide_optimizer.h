// What is decided of clipping and the optimizer.
#pragma once

#include <optional>

#include "planner/lower/step.h"
#include "planner/plan.h"

namespace foreshard {

StatusOr<OptimizerChoice> DecideOptimizer(const PlanRequest& request);
StatusOr<std::optional<ClipChoice>> DecideClip(const PlanRequest& request);

// That a plan can say what every rank holds of the optimizer. REQUIRES: all else has been decided.
Status CheckOptimizer(const ModelGraph& graph, const StepDecisions& decisions);

}  // namespace foreshard
