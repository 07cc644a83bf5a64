// The decisions behind a plan, said in sentences.
#pragma once

#include <string>
#include <vector>

#include "planner/lower/step.h"
#include "planner/plan.h"

namespace foreshard {

// One sentence for each choice that changes memory or time, defaults included.
std::vector<std::string> Assumptions(const PlanRequest& request, const StepDecisions& decisions);

}  // namespace foreshard
