// The rules of sim/engine.h one by one, on plans small enough to schedule by hand.
#include "sim/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/schedule_recorder.h"
#include "tests/testing/tiny_plan.h"

namespace foreshard::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// (start, end) of every op of one run of the plan's only segment.
std::vector<std::pair<int64_t, int64_t>> Schedule(const TinyPlan& tiny) {
  TinyPlan plan = tiny;
  plan.AddProgram({{0, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0});
  EXPECT_TRUE(run.verdict.ok()) << run.verdict.message();
  std::vector<std::pair<int64_t, int64_t>> times;
  for (const RecordedOp& op : run.schedule.ops) times.emplace_back(op.started, op.ended);
  return times;
}

TEST(Engine, AStreamRunsItsOpsInOrder) {
  TinyPlan plan(1, 0);
  plan.Add({.device = 5});
  plan.Add({.device = 7});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 5), Pair(5, 12)));
}

TEST(Engine, StreamsRunSideBySide) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .device = 5});
  plan.Add({.stream = 1, .device = 7});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 5), Pair(0, 7)));
}

TEST(Engine, TheHostIssuesOneOpAfterTheOther) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .host = 3, .device = 1});
  plan.Add({.stream = 1, .host = 4, .device = 1});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(3, 4), Pair(7, 8)));
}

TEST(Engine, TheHostRunsAheadOfTheDevice) {
  TinyPlan plan(1, 0);
  plan.Add({.host = 1, .device = 100});
  plan.Add({.host = 1, .device = 1});
  plan.AddProgram({{0, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0});
  EXPECT_EQ(run.schedule.ops[1].issued, 2);
  EXPECT_EQ(run.schedule.ops[1].started, 101);
}

TEST(Engine, AnOpWaitsForOpsOfOtherStreams) {
  TinyPlan plan(3, 0);
  plan.Add({.stream = 0, .device = 5});
  plan.Add({.stream = 1, .device = 9});
  plan.Add({.stream = 2, .device = 1, .waits = {0, 1}});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 5), Pair(0, 9), Pair(9, 10)));
}

TEST(Engine, WaitingForWhatIsDoneCostsNothing) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .device = 1});
  plan.Add({.stream = 1, .host = 50, .device = 2, .waits = {0}});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 1), Pair(50, 52)));
}

TEST(Engine, TheHostWaitsBeforeItIssues) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .host = 2, .device = 10});
  plan.Add({.stream = 1, .host = 2, .device = 3, .host_waits = {0}});  // begun at 12, issued at 14
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(2, 12), Pair(14, 17)));
}

// Records a stream's end where the host stands, and has the host wait for it later.
TEST(Engine, TheHostWaitsForARecordOfWhatAStreamHadQueued) {
  TinyPlan plan(2, 0, 1);
  plan.Add({.stream = 0, .device = 10});
  plan.Add({.stream = -1, .record = 0, .record_stream = 0});
  plan.Add({.stream = 0, .device = 10});                                     // not in the record
  plan.Add({.stream = 1, .host = 2, .device = 3, .event_waits = {{0, 0}}});  // begun at 10
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 10), Pair(-1, -1), Pair(10, 20), Pair(12, 15)));
}

TEST(Engine, ARecordHasTheOpThatMakesIt) {
  TinyPlan plan(2, 0, 1);
  plan.Add({.stream = 0, .device = 10, .record = 0, .record_stream = 0});
  plan.Add({.stream = 1, .device = 3, .event_waits = {{0, 0}}});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 10), Pair(10, 13)));
}

TEST(Engine, ARecordOfAStreamWithoutWorkIsNoWait) {
  TinyPlan plan(2, 0, 1);
  plan.Add({.stream = 0, .device = 10});
  plan.Add({.stream = -1, .record = 0, .record_stream = 1});
  plan.Add({.stream = 1, .device = 3, .event_waits = {{0, 0}}});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 10), Pair(-1, -1), Pair(0, 3)));
}

// Each step waits for the record that the step before the last has made: two steps may be queued.
TEST(Engine, ARecordOutlivesItsStep) {
  TinyPlan plan(2, 0, 1);
  plan.Add({.stream = 0, .device = 100, .record = 0, .record_stream = 0});
  plan.BeginSegment();
  plan.Add({.stream = 1, .event_waits = {{0, 1}}});
  plan.AddProgram({{0, 1}});
  plan.AddProgram({{1, 1}, {0, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0, 0, 1, 1, 1});
  ASSERT_TRUE(run.verdict.ok()) << run.verdict.message();
  std::vector<int64_t> issued;
  for (const RecordedOp& op : run.schedule.ops) issued.push_back(op.issued);
  // Work ends at 100, 200, ...; the host turns to the third step when the first has ended.
  EXPECT_THAT(issued, ElementsAre(0, 0, 100, 100, 200, 200, 300, 300));
}

TEST(Engine, CollectivesOfOneGroupRunOneAfterTheOtherWhateverTheStream) {
  TinyPlan plan(3, 2);
  plan.Add({.stream = 1, .device = 5, .group = 0});
  plan.Add({.stream = 2, .device = 5, .group = 0});
  plan.Add({.stream = 0, .device = 5, .group = 1});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 5), Pair(5, 10), Pair(0, 5)));
}

TEST(Engine, CollectivesOfOneGroupKeepIssueOrderEvenWhenTheFirstIsLate) {
  TinyPlan plan(3, 1);
  plan.Add({.stream = 0, .device = 20});
  plan.Add({.stream = 1, .device = 5, .waits = {0}, .group = 0});
  plan.Add({.stream = 2, .device = 5, .group = 0});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 20), Pair(20, 25), Pair(25, 30)));
}

TEST(Engine, AStreamWaitHoldsItsStreamForWhatWasIssuedBefore) {
  TinyPlan plan(3, 0);
  plan.Add({.stream = 1, .device = 5});
  plan.Add({.stream = 1, .device = 5});
  plan.Add({.stream = 2, .device = 7});
  plan.Add({.stream = 0, .on = {1, 2}});
  plan.Add({.stream = 1, .device = 50});  // later, so not waited for
  plan.Add({.stream = 0, .device = 1});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 5), Pair(5, 10), Pair(0, 7), Pair(10, 10),
                                          Pair(10, 60), Pair(10, 11)));
}

TEST(Engine, AStreamWaitOnAnUnusedStreamIsNoWait) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .on = {1}});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(0, 0)));
}

TEST(Engine, OpsWithoutAStreamTakeNoTime) {
  TinyPlan plan(1, 0);
  plan.Add({.host = 2, .device = 5});
  plan.Add({.stream = -1});
  plan.Add({.host = 2, .device = 5});
  EXPECT_THAT(Schedule(plan), ElementsAre(Pair(2, 7), Pair(-1, -1), Pair(7, 12)));
}

TEST(Engine, WaitsMeanTheSameRepetition) {
  // Each repetition takes 3 on stream 0, then 10 on stream 1, which is the bottleneck.
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .device = 3});
  plan.Add({.stream = 1, .device = 10, .waits = {0}});
  plan.AddProgram({{0, 3}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0});
  EXPECT_EQ(run.schedule.ops[5].started, 23);  // 3 + 2 * 10
  EXPECT_EQ(run.schedule.ops[5].instance.repetition, 2);
  EXPECT_EQ(run.end, SimTime(33));
}

TEST(Engine, EmptySegmentsAndProgramsAreSkipped) {
  TinyPlan plan(1, 0);
  plan.BeginSegment();
  plan.Add({.device = 4});
  plan.AddProgram({{0, 2}});  // of the empty segment
  plan.AddProgram({{0, 1}, {1, 1}, {0, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0, 1, 0});
  EXPECT_TRUE(run.verdict.ok()) << run.verdict.message();
  EXPECT_THAT(run.schedule.step_ends, ElementsAre(0, 4, 4));
  EXPECT_EQ(run.end, SimTime(4));
}

TEST(Engine, StepsFollowWithoutWaitingForTheDevice) {
  TinyPlan plan(1, 0);
  plan.Add({.host = 1, .device = 10});
  plan.AddProgram({{0, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0, 0});
  EXPECT_THAT(run.schedule.step_begins, ElementsAre(0, 1));
  EXPECT_THAT(run.schedule.step_ends, ElementsAre(11, 21));
}

TEST(Engine, AStepEndsAfterTheStepsBeforeIt) {
  TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .device = 100});
  plan.BeginSegment();
  plan.Add({.stream = 1, .device = 1});
  plan.AddProgram({{0, 1}});
  plan.AddProgram({{1, 1}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0, 1});
  EXPECT_THAT(run.schedule.step_ends, ElementsAre(100, 100));
}

TEST(Engine, BuffersComeBeforeTheIssueAndGoAfterIt) {
  class Watch final : public run::Listener {
   public:
    std::vector<std::pair<int64_t, int>> changes;  // time, +buffer + 1 or -(buffer + 1)
    void BufferAllocated(run::BufferId b, const run::OpInstance&, SimTime now) override {
      changes.emplace_back(now.count(), static_cast<int>(b) + 1);
    }
    void BufferFreed(run::BufferId b, const run::OpInstance&, SimTime now) override {
      changes.emplace_back(now.count(), -static_cast<int>(b) - 1);
    }
  };
  TinyPlan plan(1, 0);
  const int a = plan.Buffer(8);
  const int b = plan.Buffer(8);
  plan.Add({.host = 4, .device = 100, .allocs = {b, a}, .frees = {b}});
  plan.Add({.stream = -1, .frees = {a}});
  plan.AddProgram({{0, 1}});
  const run::Program program = plan.Compiled();
  Watch watch;
  run::Listener* const listeners[] = {&watch};
  const run::ProgramId steps[] = {run::ProgramId{0}};
  Engine(program, listeners).Run(steps);
  EXPECT_THAT(watch.changes, ElementsAre(Pair(0, 2), Pair(0, 1), Pair(4, -2), Pair(4, -1)));
}

TEST(Engine, LongRunsForgetWhatHasEnded) {
  // The window of live ops is dropped many times here; waits must still find their ops.
  TinyPlan plan(2, 1);
  plan.Add({.stream = 0, .host = 1, .device = 2});
  plan.Add({.stream = 1, .host = 1, .device = 2, .waits = {0}, .group = 0});
  plan.Add({.stream = 0, .host = 1, .device = 2, .host_waits = {1}});
  plan.AddProgram({{0, 20'000}});
  const RecordedRun run = RunRecorded(plan.Compiled(), {0});
  EXPECT_TRUE(run.verdict.ok()) << run.verdict.message();
  // The host issues op 0 (1), which runs (2); op 1 runs (2); the host issues op 2 (1), and op 0 of
  // the next repetition while op 2 runs. A repetition is op 2's issue (1) and run (2), and of the
  // next op 0's run (2), op 1's run (2): 7. The first has 1 more, op 0's issue.
  EXPECT_EQ(run.end, SimTime(20'000 * 7 + 1));
}

}  // namespace
}  // namespace foreshard::sim
