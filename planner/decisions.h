// A PlanRequest as the Decisions message of a plan, and back.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/lower/step.h"
#include "planner/plan.h"
#include "proto/plan.pb.h"

namespace foreshard {

// What was asked for and what became of it: everything that RequestOf needs to ask for it again.
void RecordDecisions(const PlanRequest& request, const StepDecisions& decisions,
                     const std::vector<WrapRequest>& calls, const ModelGraph& graph,
                     pb::Decisions& out);

// The request that makes the plan with these decisions, byte for byte. An absent field means what
// PlanRequest has by default, but for the optimizer: OPTIMIZER_NONE is none. `wrap` counts if
// wrap_policy is "explicit" or absent; what is for people (assumptions, attention_reason) does not
// count. kInvalidArgument for values that no request can have; whether one makes sense is for
// MakePlan to say.
StatusOr<PlanRequest> RequestOf(const pb::Decisions& decisions);

}  // namespace foreshard
