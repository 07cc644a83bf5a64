// Events that outlive a step: what the host's waits for their records order, and what of them is
// refused; programs between the first and the steady one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/plan_check_facts.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

using ::testing::HasSubstr;

constexpr int kStep = 0, kInit = 1, kUpdate = 2, kLimit = 3;

void AddProgram(pb::Plan& plan, const char* name, const std::vector<int>& segments) {
  pb::Program& program = *plan.add_programs();
  program.set_name(name);
  for (const int segment : segments) {
    pb::SegmentUse& use = *program.add_uses();
    use.set_segment(segment);
    use.set_repeat(1);
  }
}

pb::Op* Limit(pb::Plan& plan) { return plan.mutable_segments(kLimit)->mutable_ops(0); }
pb::Op* Update(pb::Plan& plan, int op) { return plan.mutable_segments(kUpdate)->mutable_ops(op); }

void Record(pb::Op& op, int event, int stream) {
  op.set_record(event);
  op.set_record_stream(stream);
}

// The small plan where the host, and no stream, waits for the end of the step before: the update
// records it, and every later step begins with a wait. Event 1 is recorded in the middle of a step.
pb::Plan LimitedPlan() {
  pb::Plan plan = SmallPlan();
  plan.add_events()->set_name("end");
  plan.add_events()->set_name("block");
  pb::Segment& limit = *plan.add_segments();
  limit.set_name("limit");
  pb::Op& wait = *limit.add_ops();
  wait.set_phase(pb::FORWARD);
  wait.mutable_release();
  wait.add_event_waits();
  plan.mutable_segments(kUpdate)->mutable_ops()->RemoveLast();
  Record(*Step(plan, 8), 1, 0);
  Record(*Update(plan, 1), 0, 0);
  plan.clear_programs();
  AddProgram(plan, "first", {kStep, kInit, kUpdate});
  AddProgram(plan, "warmup", {kLimit, kStep, kUpdate});
  AddProgram(plan, "steady", {kLimit, kStep, kUpdate});
  return plan;
}

TEST(PlanCheckEvents, AWaitForARecordOrdersSteps) {
  const Status status = CheckPlan(LimitedPlan());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PlanCheckEvents, AnyNumberOfProgramsMayWarmUp) {
  pb::Plan plan = LimitedPlan();
  plan.clear_programs();
  AddProgram(plan, "first", {kStep, kInit, kUpdate});
  for (const char* name : {"warmup", "warmup_2", "warmup_3", "steady"}) {
    AddProgram(plan, name, {kLimit, kStep, kUpdate});
  }
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

class BrokenEvents : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenEvents, AreRefusedByTheirRule) { ExpectRefused(LimitedPlan(), GetParam()); }

const Mutation kEvents[] = {
    {"NotWaitedFor", "lifetime",
     "op 0 (cast_shard, block): may reuse the bytes of buffer 11, which was freed while segment "
     "\"step\" op 6 (all_gather, <root>) of the step before may still use it (program \"warmup\")",
     [](pb::Plan& p) { Limit(p)->clear_event_waits(); }},
    {"EarlierRecord", "order", "op 0 (cast_shard, block): reads buffer 0, which segment \"update\"",
     [](pb::Plan& p) {
       Record(*Step(p, 16), 0, 0);
       Limit(p)->mutable_event_waits(0)->set_back(1);
     }},
    {"OtherEvent", "order", "op 0 (cast_shard, block): reads buffer 0, which segment \"update\"",
     [](pb::Plan& p) { Limit(p)->mutable_event_waits(0)->set_event(1); }},
    {"OtherStream", "order", "op 0 (cast_shard, block): reads buffer 0, which segment \"update\"",
     [](pb::Plan& p) { Update(p, 1)->set_record_stream(3); }},
    {"RecordedBeforeTheWork", "order", "op 0 (cast_shard, block): reads buffer 0, which segment",
     [](pb::Plan& p) {
       Update(p, 1)->clear_record();
       Update(p, 1)->clear_record_stream();
       Record(*Step(p, 16), 0, 0);
     }},
    {"NeverRecorded", "event",
     "segment \"limit\" op 0 (release): waits for a record of event \"end\", of which there have "
     "been 0, and looks past 0 of them (program \"warmup\")",
     [](pb::Plan& p) {
       Update(p, 1)->clear_record();
       Update(p, 1)->clear_record_stream();
     }},
    {"TooFarBack", "event", "of which there have been 1, and looks past 1 of them",
     [](pb::Plan& p) { Limit(p)->mutable_event_waits(0)->set_back(1); }},
    {"RecordedInFirstAlone", "event",
     "and finds that of a reshard of unit \"block\" in BACKWARD, 3 steps back, in the step before "
     "that of a reshard of unit \"block\" in BACKWARD, 2 steps back (program \"steady\")",
     [](pb::Plan& p) {
       p.add_events()->set_name("once");
       *p.add_segments() = p.segments(kStep);
       p.mutable_segments(4)->mutable_ops(8)->set_record(2);
       p.mutable_programs(0)->mutable_uses(0)->set_segment(4);
       Limit(p)->add_event_waits()->set_event(2);
     }},
    {"RecordedByAnotherOpBefore", "event",
     "and finds that of a zero_grad of no unit in ZERO_GRAD, 1 steps back, in the step before that "
     "of a optimizer_step of no unit in OPTIMIZER, 1 steps back",
     [](pb::Plan& p) {
       *p.add_segments() = p.segments(kUpdate);
       pb::Segment& update = *p.mutable_segments(4);
       update.mutable_ops(1)->clear_record();
       Record(*update.mutable_ops(0), 0, 0);
       p.mutable_programs(1)->mutable_uses(2)->set_segment(4);
     }},
    {"WaitIndex", "index", "waits for event 2 of 2",
     [](pb::Plan& p) { Limit(p)->mutable_event_waits(0)->set_event(2); }},
    {"RecordIndex", "index", "records event -1 of 2",
     [](pb::Plan& p) { Step(p, 8)->set_record(-1); }},
    {"RecordStreamIndex", "index", "records stream 4 of 4",
     [](pb::Plan& p) { Step(p, 8)->set_record_stream(4); }},
    {"StreamWithoutRecord", "index", "records stream 1 of 0",
     [](pb::Plan& p) { Step(p, 7)->set_record_stream(1); }},
    {"Back", "event", "looks past 8 records of event \"end\", expected 0 to 7",
     [](pb::Plan& p) { Limit(p)->mutable_event_waits(0)->set_back(8); }},
    {"BackNegative", "event", "looks past -1 records",
     [](pb::Plan& p) { Limit(p)->mutable_event_waits(0)->set_back(-1); }},
};
INSTANTIATE_TEST_SUITE_P(Events, BrokenEvents, ::testing::ValuesIn(kEvents), NameOf);

// A wait for the record of the step before the last: its third walk is the first to see a record of
// a steady step.
TEST(PlanCheckEvents, FindsWhatOnlyAThirdSteadyStepShows) {
  pb::Plan plan = SmallPlan();
  plan.add_events()->set_name("end");
  Record(*Update(plan, 1), 0, 0);
  pb::Segment& limit = *plan.add_segments();
  limit.set_name("limit");
  pb::Op& wait = *limit.add_ops();
  wait.set_phase(pb::FORWARD);
  wait.mutable_release();
  wait.add_event_waits()->set_back(1);
  plan.clear_programs();
  AddProgram(plan, "first", {kStep, kInit, kUpdate});
  AddProgram(plan, "warmup", {kStep, kUpdate});
  AddProgram(plan, "steady", {kLimit, kStep, kUpdate});
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
  // The step before has waited, in its host wait for a gather's copy, for more.
  PlanFacts facts = AnalyzePlan(plan);
  EXPECT_EQ(facts.redundant, 1);
  ASSERT_EQ(facts.redundant_waits.size(), 1u);
  EXPECT_EQ(facts.redundant_waits[0].waiter, "host (release)");
  EXPECT_EQ(facts.redundant_waits[0].on, "event end");
  // The last step's end is another matter; asked for twice, one of the two is superfluous.
  *Limit(plan)->add_event_waits() = Limit(plan)->event_waits(0);
  for (pb::EventWait& w : *Limit(plan)->mutable_event_waits()) w.set_back(0);
  facts = AnalyzePlan(plan);
  EXPECT_EQ(facts.waits, 12);
  EXPECT_EQ(facts.redundant_waits[0].on, "event end");
  EXPECT_EQ(facts.redundant_waits[0].count, 1);
}

TEST(EquivalentPlans, AWaitForARecordCounts) {
  const pb::Plan plan = LimitedPlan();
  pb::Plan other = plan;
  Limit(other)->clear_event_waits();
  EXPECT_FALSE(EquivalentPlans(plan, other)) << "the next step may overtake the update";
  other = plan;
  Limit(other)->mutable_event_waits(0)->set_event(1);
  EXPECT_FALSE(EquivalentPlans(plan, other));
  // A wait for what has ended anyway does not, however far back it looks.
  other = plan;
  pb::EventWait& wait = *Step(other, 16)->add_event_waits();
  wait.set_event(1);
  EXPECT_TRUE(EquivalentPlans(plan, other));
  // Nor does one for a record that there is not, which CheckPlan refuses.
  wait.set_back(40);
  EXPECT_TRUE(EquivalentPlans(plan, other));
}

}  // namespace
}  // namespace foreshard
