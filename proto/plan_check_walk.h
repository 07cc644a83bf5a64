// The run of a plan that its rules are tested on: `first`, `steady`, `steady`, so that whatever one
// step leaves to the next is seen both ways. Internal to proto/plan_check*.cc.
#pragma once

#include <algorithm>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::plan_check {

inline constexpr int kWalkedPrograms = 3;

inline const pb::Program& WalkedProgram(const pb::Plan& plan, int number) {
  return plan.programs(number == 0 ? 0 : 1);
}

// Calls BeginProgram(number), BeginSegment(number, segment, repetition), Visit(segment, op) in
// issue order and EndProgram(number), until one returns an error. A segment that repeats is run
// twice: how two ops of neighbouring repetitions relate is the same for all neighbours, and
// conflicts of repetitions further apart follow from those between.
template <typename Visitor>
Status WalkPlan(const pb::Plan& plan, Visitor& visitor) {
  for (int number = 0; number < kWalkedPrograms; ++number) {
    visitor.BeginProgram(number);
    for (const pb::SegmentUse& use : WalkedProgram(plan, number).uses()) {
      const pb::Segment& segment = plan.segments(use.segment());
      for (int repetition = 0; repetition < std::min(use.repeat(), 2); ++repetition) {
        visitor.BeginSegment(number, use.segment(), repetition);
        for (int op = 0; op < segment.ops_size(); ++op) {
          RETURN_IF_ERROR(visitor.Visit(use.segment(), op));
        }
      }
    }
    RETURN_IF_ERROR(visitor.EndProgram(number));
  }
  return OkStatus();
}

}  // namespace foreshard::plan_check
