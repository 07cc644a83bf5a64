// The one gate: tests every rule that the comments of proto/plan.proto state. Every reader of a
// plan calls it before anything else, so that nobody downstream has to doubt a plan.
#pragma once

#include "proto/base/status.h"

namespace foreshard::pb {
class Plan;
}

namespace foreshard {

inline constexpr int kPlanFormatVersion = 4;

// OK, or kInvalidPlan naming the first broken rule and the place, as in
//   rule lifetime: segment "step" op 17 (copy_out, layers.3): reads buffer 9, which is not alive
Status CheckPlan(const pb::Plan& plan);

}  // namespace foreshard
