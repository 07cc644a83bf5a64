// The run of a plan that its rules are tested on: every program once, in order, and `steady` again,
// so that whatever one step leaves to the next is seen. Internal to proto/plan_check*.cc.
#pragma once

#include <algorithm>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::plan_check {

// Records of its event that a wait may look past (rule event).
inline constexpr int kMostRecordsPast = 63;

// How often `steady`, and a segment that repeats, is run: how two neighbouring runs of the same ops
// relate is the same for all neighbours. A wait for a record may find it in the run before, or as
// many runs earlier as it looks past records; from then on they are alike.
inline int WalkedRepetitions(const pb::Plan& plan) {
  int before = 0;
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      for (const pb::EventWait& wait : op.event_waits()) before = std::max(before, wait.back() + 1);
    }
  }
  return 2 + std::min(before, kMostRecordsPast + 1);
}

// The number-th program that runs, from 0. REQUIRES: the plan has one.
inline const pb::Program& WalkedProgram(const pb::Plan& plan, int number) {
  return plan.programs(std::min(number, plan.programs_size() - 1));
}

// Calls BeginProgram(number), BeginSegment(number, segment, repetition), Visit(segment, op) in
// issue order and EndProgram(number), until one returns an error; `steady`, and what repeats, as
// often as `repetitions` says.
template <typename Visitor>
Status WalkPlan(const pb::Plan& plan, int repetitions, Visitor& visitor) {
  for (int number = 0; number < plan.programs_size() - 1 + repetitions; ++number) {
    visitor.BeginProgram(number);
    for (const pb::SegmentUse& use : WalkedProgram(plan, number).uses()) {
      const pb::Segment& segment = plan.segments(use.segment());
      for (int repetition = 0; repetition < std::min(use.repeat(), repetitions); ++repetition) {
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

template <typename Visitor>
Status WalkPlan(const pb::Plan& plan, Visitor& visitor) {
  return WalkPlan(plan, WalkedRepetitions(plan), visitor);
}

}  // namespace foreshard::plan_check
