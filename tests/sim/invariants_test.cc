// Runs that never happened: each breaks one invariant, and the checker must say which.
#include "sim/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tiny_plan.h"

namespace foreshard::sim {
namespace {

using ::testing::HasSubstr;

// Two streams, one group. Op 0 on stream 0 takes 5; op 1 on stream 1 waits for it and takes 3;
// op 2 follows on stream 0 and waits for stream 1; ops 3 and 4 are collectives of one group on
// different streams; op 5 makes the host wait for op 1; op 6 records stream 0, and the host waits
// for that before op 7.
TinyPlan MakePlan() {
  TinyPlan plan(2, 1, 1);
  plan.Buffer(8);
  plan.Add({.stream = 0, .device = 5, .allocs = {0}});
  plan.Add({.stream = 1, .device = 3, .waits = {0}});
  plan.Add({.stream = 0, .on = {1}, .frees = {0}});
  plan.Add({.stream = 0, .device = 2, .group = 0});
  plan.Add({.stream = 1, .device = 2, .group = 0});
  plan.Add({.stream = 1, .device = 1, .host_waits = {1}});
  plan.Add({.stream = -1, .record = 0, .record_stream = 0});
  plan.Add({.stream = -1, .event_waits = {{0, 0}}});
  plan.AddProgram({{0, 1}});
  return plan;
}

// Plays events by hand to a checker.
class Player {
 public:
  Player() : program_(MakePlan().Compiled()), checker_(program_) {
    checker_.StepBegun(0, SimTime(0));
  }
  Player& Begin(int op, int64_t t) { return checker_.OpBegun(At(op), SimTime(t)), *this; }
  Player& Issue(int op, int64_t t) { return checker_.OpIssued(At(op), SimTime(t)), *this; }
  Player& Start(int op, int64_t t) { return checker_.OpStarted(At(op), SimTime(t)), *this; }
  Player& End(int op, int64_t t) { return checker_.OpEnded(At(op), SimTime(t)), *this; }
  Player& Allocate(int op, int64_t t) {
    return checker_.BufferAllocated(run::BufferId{0}, At(op), SimTime(t)), *this;
  }
  Player& Free(int op, int64_t t) {
    return checker_.BufferFreed(run::BufferId{0}, At(op), SimTime(t)), *this;
  }
  Player& BeginStep(int64_t t) { return checker_.StepBegun(0, SimTime(t)), *this; }
  Player& EndStep(int64_t t) { return checker_.StepEnded(0, SimTime(t)), *this; }
  std::string Verdict() {
    const Status status = checker_.Verdict();
    return status.ok() ? "" : status.message();
  }

 private:
  static run::OpInstance At(int op) {
    run::OpInstance instance;
    instance.sequence = op;
    instance.op = run::OpId{op};
    instance.position = op;
    return instance;
  }

  run::Program program_;
  InvariantChecker checker_;
};

TEST(Invariants, AProperRunPasses) {
  Player run;
  run.Begin(0, 0).Allocate(0, 0).Issue(0, 0).Start(0, 0).Begin(1, 0).Issue(1, 0);
  run.Begin(2, 0).Issue(2, 0).Free(2, 0).Begin(3, 0).Issue(3, 0).Begin(4, 0).Issue(4, 0);
  run.End(0, 5).Start(1, 5).End(1, 8).Begin(5, 8).Issue(5, 8).Start(2, 8).End(2, 8);
  run.Start(3, 8).End(3, 10).Start(4, 10).End(4, 12).Start(5, 12).End(5, 13).EndStep(13);
  EXPECT_EQ(run.Verdict(), "");
}

TEST(Invariants, TimeGoingBackIsFound) {
  EXPECT_THAT(Player().Begin(0, 5).Issue(0, 4).Verdict(), HasSubstr("time goes back from 5"));
}

TEST(Invariants, StartingTwiceIsFound) {
  EXPECT_THAT(Player().Issue(0, 0).Start(0, 0).Start(0, 1).Verdict(), HasSubstr("started twice"));
}

TEST(Invariants, StartingBeforeTheIssueIsFound) {
  EXPECT_THAT(Player().Start(0, 0).Verdict(), HasSubstr("before it was issued"));
}

TEST(Invariants, IssuingTwiceIsFound) {
  EXPECT_THAT(Player().Issue(0, 0).Issue(0, 0).Verdict(), HasSubstr("issued twice"));
}

TEST(Invariants, EndingTwiceIsFound) {
  EXPECT_THAT(Player().Issue(0, 0).Start(0, 0).End(0, 5).End(0, 5).Verdict(),
              HasSubstr("ended twice"));
}

TEST(Invariants, NeverEndingIsFound) {
  EXPECT_THAT(Player().Issue(0, 0).Start(0, 0).Verdict(), HasSubstr("op 0 of the run never ended"));
}

TEST(Invariants, AWrongDurationIsFound) {
  EXPECT_THAT(Player().Issue(0, 0).Start(0, 0).End(0, 4).Verdict(),
              HasSubstr("took 4 ps instead of 5 ps"));
}

TEST(Invariants, StartingBeforeAnAwaitedOpEndedIsFound) {
  Player run;
  run.Issue(0, 0).Start(0, 0).Issue(1, 0).Start(1, 4);
  EXPECT_THAT(run.Verdict(), HasSubstr("op 1 of segment 0 (op 1 of the run): started before op 0"));
}

TEST(Invariants, TwoOpsAtOnceOnAStreamAreFound) {
  Player run;
  // Op 2's stream wait is satisfied, but op 0 still runs on its stream.
  run.Issue(0, 0).Start(0, 0).Issue(2, 0).Start(2, 1);
  EXPECT_THAT(run.Verdict(), HasSubstr("started before op 0"));
}

TEST(Invariants, AnIgnoredStreamWaitIsFound) {
  Player run;
  run.Issue(0, 0).Start(0, 0).Issue(1, 0).Issue(2, 0).End(0, 5).Start(1, 5).Start(2, 6);
  EXPECT_THAT(run.Verdict(), HasSubstr("op 2 of the run): started before op 1"));
}

TEST(Invariants, TwoCollectivesAtOnceInAGroupAreFound) {
  EXPECT_THAT(Player().Issue(3, 0).Issue(4, 0).Start(3, 0).Start(4, 1).Verdict(),
              HasSubstr("op 4 of the run): started before op 3"));
}

TEST(Invariants, AHostThatDoesNotWaitIsFound) {
  EXPECT_THAT(Player().Issue(1, 0).Begin(5, 0).Verdict(), HasSubstr("the host waits for"));
}

TEST(Invariants, AHostThatDoesNotWaitForARecordIsFound) {
  Player run;
  run.Issue(0, 0).Start(0, 0).Begin(6, 0).Issue(6, 0).Begin(7, 4);
  EXPECT_THAT(run.Verdict(), HasSubstr("op 7 of the run): begun before op 0 that the host"));
}

TEST(Invariants, ARecordThatWasNotMadeIsFound) {
  EXPECT_THAT(Player().Begin(7, 0).Verdict(), HasSubstr("a record that does not exist"));
}

TEST(Invariants, AllocatingTwiceIsFound) {
  EXPECT_THAT(Player().Allocate(0, 0).Allocate(0, 0).Verdict(),
              HasSubstr("allocates buffer 0 twice"));
}

TEST(Invariants, FreeingWhatIsNotAliveIsFound) {
  EXPECT_THAT(Player().Free(2, 0).Verdict(), HasSubstr("frees buffer 0, which is not alive"));
}

TEST(Invariants, AStepShorterThanItsOpsIsFound) {
  Player run;
  run.Issue(0, 0).Start(0, 0).BeginStep(1).End(0, 5).EndStep(5);
  EXPECT_THAT(run.Verdict(), HasSubstr("step 0 lasted 4 ps, less than the 5 ps"));
}

TEST(Invariants, BytesAliveAtTheEndAreNoLeak) { EXPECT_EQ(Player().Allocate(0, 0).Verdict(), ""); }

}  // namespace
}  // namespace foreshard::sim
