// A plan with the times that a cost model gives its ops.
#pragma once

#include "proto/base/status.h"
#include "proto/base/units.h"
#include "proto/run/program.h"
#include "sim/cost/cost_model.h"

namespace foreshard::sim {

// REQUIRES: CheckPlan(plan) is OK, `costs` was made for it and 0 <= rank < world size.
// Errors: kInvalidArgument when an op or a program takes longer than the clock should have to count
// (kLongestProgram), or a time is no number.
inline constexpr Seconds kLongestProgram{100'000};
StatusOr<run::Program> Compile(const pb::Plan& plan, const CostModel& costs, int rank = 0);

}  // namespace foreshard::sim
