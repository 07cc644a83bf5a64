// Requests that no model can serve.
#pragma once

#include "planner/plan.h"

namespace foreshard {

// kInvalidArgument for sizes out of range and for options that PyTorch refuses or that contradict
// one another, whatever the model is.
Status CheckRequest(const PlanRequest& request);

}  // namespace foreshard
