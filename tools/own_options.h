// Options that not every strategy has, where plans of several strategies are compared.
#pragma once

#include "planner/plan.h"

namespace foreshard {

struct PlanChoice;

// Takes back what the request's strategy does not have, which a plan of it alone would refuse.
// REQUIRES: the strategy is one.
void KeepOwnOptions(PlanRequest& request);
void KeepOwnChoices(PlanChoice& choice);

}  // namespace foreshard
