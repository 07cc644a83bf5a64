#include "proto/run/timeline_recorder.h"

#include <gtest/gtest.h>

#include "proto/base/units.h"
#include "tests/testing/parse.h"

namespace foreshard::run {
namespace {

// Op 0 allocates a TEMP of 40 bytes that settles as a gradient, op 1 frees it; op 2 has no stream.
constexpr std::string_view kPlan = R"pb(
  modules { path: "" }
  units { name: "<root>" }
  streams { name: "compute" role: COMPUTE }
  kernels { name: "mm" }
  buffers { bytes: 40 category: TEMP }
  buffers {
    bytes: 16
    category: SHARDED_PARAM
    others { rank: 1 bytes: 12 }
  }
  resident: 1
  segments {
    name: "step"
    ops {
      stream: 0
      allocs: 0
      module: 0
      phase: BACKWARD
      compute { kernel: 0 }
      settles { buffer: 0 category: UNSHARDED_GRAD }
    }
    ops {
      stream: 0
      frees: 0
      unit: 0
      phase: BACKWARD
      reduce_copy_in {}
    }
    ops {
      phase: ZERO_GRAD
      zero_grad {}
    }
  }
  programs {
    name: "first"
    uses { segment: 0 repeat: 1 }
  }
)pb";

OpInstance Instance(int32_t step, int32_t position) {
  OpInstance op;
  op.sequence = 3 * step + position;
  op.step = step;
  op.op = OpId{position};
  op.position = position;
  return op;
}

// Steps of 100 ps. Op 0 ends on its stream before the host is done with it.
void TellStep(int32_t step, Listener& to) {
  const SimTime begin(1000 + 100 * step);
  const auto at = [&](int64_t ps) { return begin + SimTime(ps); };
  to.StepBegun(step, begin);
  to.OpBegun(Instance(step, 0), at(1));
  to.BufferAllocated(BufferId{0}, Instance(step, 0), at(1));
  to.OpStarted(Instance(step, 0), at(2));
  to.OpEnded(Instance(step, 0), at(5));
  to.OpIssued(Instance(step, 0), at(6));
  to.OpBegun(Instance(step, 1), at(6));
  to.OpStarted(Instance(step, 1), at(7));
  to.OpEnded(Instance(step, 1), at(9));
  to.OpIssued(Instance(step, 1), at(10));
  to.BufferFreed(BufferId{0}, Instance(step, 1), at(10));
  to.OpBegun(Instance(step, 2), at(10));
  to.OpIssued(Instance(step, 2), at(11));
  to.StepEnded(step, at(11));
}

pb::Timeline Record(std::vector<int32_t> steps) {
  const auto plan = ParseOrDie<pb::Plan>(kPlan);
  const Program program = Flatten(plan, 0);
  pb::Timeline timeline = NewTimeline(plan, program, 0);
  TimelineRecorder recorder(plan, program, std::move(steps), timeline);
  for (int32_t step = 0; step < 3; ++step) TellStep(step, recorder);
  return timeline;
}

TEST(TimelineRecorder, KeepsTheStepsAskedForInIssueOrder) {
  const pb::Timeline timeline = Record({0, 2});
  ASSERT_EQ(timeline.ops_size(), 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(timeline.ops(i).op(), i % 3);
  EXPECT_EQ(Record({}).ops_size(), 0);
}

TEST(TimelineRecorder, TimesCountFromTheBeginOfTheOpsOwnStep) {
  const pb::Timeline timeline = Record({0, 2});
  for (const int first : {0, 3}) {
    EXPECT_EQ(timeline.ops(first).start_ps(), 2);
    EXPECT_EQ(timeline.ops(first).end_ps(), 5);
    EXPECT_EQ(timeline.ops(first + 1).start_ps(), 7);
    EXPECT_EQ(timeline.ops(first + 1).end_ps(), 9);
    EXPECT_EQ(timeline.ops(first + 2).stream(), -1);
    EXPECT_EQ(timeline.ops(first + 2).end_ps(), 0);
  }
}

TEST(TimelineRecorder, AnOpThatEndsBeforeItsFreesKeepsThem) {
  const pb::Timeline timeline = Record({1});
  const pb::TimelineOp& makes = timeline.ops(0);
  ASSERT_EQ(makes.allocated_size(), 1);
  EXPECT_EQ(makes.allocated(0).category(), pb::TEMP);
  EXPECT_EQ(makes.allocated(0).bytes(), 40);
  ASSERT_EQ(makes.settled_size(), 2);
  EXPECT_EQ(makes.settled(0).category(), pb::TEMP);
  EXPECT_EQ(makes.settled(0).bytes(), -40);
  EXPECT_EQ(makes.settled(1).category(), pb::UNSHARDED_GRAD);
  EXPECT_EQ(makes.settled(1).bytes(), 40);
  const pb::TimelineOp& frees = timeline.ops(1);
  ASSERT_EQ(frees.freed_size(), 1);
  EXPECT_EQ(frees.freed(0).category(), pb::UNSHARDED_GRAD);
  EXPECT_EQ(frees.freed(0).bytes(), 40);
}

TEST(TimelineRecorder, RowsNameWhatTheyAre) {
  const pb::Timeline timeline = Record({1});
  EXPECT_EQ(timeline.programs(timeline.ops(0).program()), "first");
  EXPECT_EQ(timeline.segments(timeline.ops(0).segment()), "step");
  EXPECT_EQ(timeline.streams(timeline.ops(0).stream()), "compute");
  EXPECT_EQ(timeline.ops(0).kind(), "compute");
  EXPECT_EQ(timeline.ops(0).kernel(), "mm");
  EXPECT_EQ(timeline.ops(0).phase(), pb::BACKWARD);
  EXPECT_EQ(timeline.ops(1).kind(), "reduce_copy_in");
  EXPECT_EQ(timeline.ops(1).unit(), "<root>");
}

TEST(NewTimeline, HoldsWhatTheRankHasBeforeTheFirstOp) {
  const auto plan = ParseOrDie<pb::Plan>(kPlan);
  const pb::Timeline timeline = NewTimeline(plan, Flatten(plan, 1), 1);
  EXPECT_EQ(timeline.rank(), 1);
  ASSERT_EQ(timeline.resident_size(), 1);
  EXPECT_EQ(timeline.resident(0).category(), pb::SHARDED_PARAM);
  EXPECT_EQ(timeline.resident(0).bytes(), 12);
}

}  // namespace
}  // namespace foreshard::run
