// Choices that not every strategy has, where plans of several strategies are compared.
#pragma once

namespace foreshard {

struct PlanChoice;

// Takes back what the choice's strategy does not have, as TakeBackForeign (planner) does of a
// request. REQUIRES: the strategy is one.
void KeepOwnChoices(PlanChoice& choice);

}  // namespace foreshard
