// What may be done with a model of unknown origin.
#pragma once

#include "planner/plan.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/fuzz/fuzz_target.h"

namespace foreshard::fuzz {

inline int CountModules(const pb::Module& module) {
  int count = 1;
  for (const pb::Module& child : module.children()) count += CountModules(child);
  return count;
}

// Lowers the model, unless it is large; a plan that comes out is valid.
inline void LowerAndCheck(const pb::Model& model) {
  constexpr int kMaxModules = 200;
  if (CountModules(model.root()) > kMaxModules) return;
  for (const char* wrap : {"block", "whole"}) {
    PlanRequest request;
    request.world_size = 4;
    request.seq = 8;
    request.wrap = wrap;
    const StatusOr<pb::Plan> plan = MakePlan(model, request);
    if (!plan.ok()) {
      Require(plan.status().code() != StatusCode::kInternal, plan.status().message());
      continue;
    }
    const Status verdict = CheckPlan(*plan);
    Require(verdict.ok(), verdict.message());
  }
}

}  // namespace foreshard::fuzz
