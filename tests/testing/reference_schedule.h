// When every op of a plan starts, found in the slowest and plainest way: write down every "not
// before" as a constraint and raise the times until all hold. Shares no code with the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::sim {

struct ReferenceOp {
  int64_t issued = 0;  // picoseconds
  int64_t started = 0;
  int64_t ended = 0;
};

// The ops of the given programs, one after the other, in host order. Reads times from plans of
// TinyPlan.
std::vector<ReferenceOp> ReferenceSchedule(const pb::Plan& plan, const std::vector<int>& steps);

}  // namespace foreshard::sim
