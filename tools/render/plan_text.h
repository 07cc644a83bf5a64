// A plan in a few lines.
#pragma once

#include <string>

namespace foreshard::pb {
class Plan;
}

namespace foreshard {

// REQUIRES: CheckPlan(plan) is OK.
std::string RenderPlanSummary(const pb::Plan& plan);

}  // namespace foreshard
