// Which options the libraries behind the strategies have.
#pragma once

#include "planner/plan.h"
#include "proto/base/status.h"

namespace foreshard {

// Refuses unknown strategies, and options that the library of the request's strategy has not: each
// message says what to use instead. Ranks and replicas are looked at as far as they go without a
// model.
Status CheckStrategy(const PlanRequest& request);

// Takes back what the request's strategy does not have, which CheckStrategy would refuse, so that
// one request can be compared across strategies. REQUIRES: the strategy is one.
void TakeBackForeign(PlanRequest& request);

}  // namespace foreshard
