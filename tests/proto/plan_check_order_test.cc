// Rules of order, of what buffers hold and of what a step leaves, each broken by a minimal change
// of the hand-written plan; and what happens-before tells of a plan that is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/plan_check_facts.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

using ::testing::HasSubstr;

pb::Op* Init(pb::Plan& plan) { return plan.mutable_segments(1)->mutable_ops(0); }
pb::Op* Update(pb::Plan& plan, int op) { return plan.mutable_segments(2)->mutable_ops(op); }

void Use(pb::Program& program, int segment) {
  pb::SegmentUse& use = *program.add_uses();
  use.set_segment(segment);
  use.set_repeat(1);
}

class DisorderedPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(DisorderedPlan, IsRefusedByItsRule) { ExpectRefused(GetParam()); }

const Mutation kOrder[] = {
    {"ReadAfterWrite", "order",
     "op 3 (copy_out, block): reads buffer 5, which segment \"step\" op 2 (all_gather, block) may "
     "still be writing (program \"first\")",
     [](pb::Plan& p) { Step(p, 3)->clear_waits(); }},
    {"WriteAfterWrite", "order", "op 2 (all_gather, block): reads buffer 5",
     [](pb::Plan& p) { Step(p, 2)->clear_waits(); }},
    {"WriteAfterRead", "order",
     "op 0 (optimizer_step): writes buffer 0, which segment \"step\" op 17 (cast_shard, block) may "
     "still be reading",
     [](pb::Plan& p) {
       *p.add_buffers() = p.buffers(4);
       pb::Op& op = *p.mutable_segments(0)->add_ops();
       op = p.segments(0).ops(0);
       op.set_allocs(0, 21);
       op.set_out(0, 21);
       op.add_frees(21);
       op.add_waits(7);
     }},
    {"OtherStream", "order", "op 0 (optimizer_step): reads buffer 10",
     [](pb::Plan& p) { Update(p, 0)->set_stream(2); }},
    {"StepsOverlap", "order",
     "op 0 (cast_shard, block): reads buffer 0, which segment \"update\" op 0 (optimizer_step) of "
     "the step before may still be writing (program \"steady\")",
     [](pb::Plan& p) { Update(p, 2)->mutable_stream_wait()->set_on(0, 2); }},
    {"FreedWhileInUse", "lifetime",
     "op 5 (gather_copy_in, <root>): may reuse the bytes of buffer 5, which was freed while "
     "segment \"step\" op 3 (copy_out, block) may still use it",
     [](pb::Plan& p) { Step(p, 5)->clear_waits(); }},
    {"FreedWhileInUseByTheStepBefore", "lifetime", "may reuse the bytes of buffer 11",
     [](pb::Plan& p) { Update(p, 2)->mutable_stream_wait()->clear_on(); }},
    {"RecycledWhileInUse", "lifetime",
     "op 11 (reduce_scatter, block): uses buffer 10 while segment \"step\" op 9 (compute relu, ), "
     "queued on the buffer's stream before it was allocated",
     [](pb::Plan& p) { p.mutable_buffers(10)->set_stream(0); }},
    {"RecycledScratch", "lifetime", "op 11 (reduce_scatter, block): uses buffer 21 while",
     [](pb::Plan& p) {
       *p.add_buffers() = p.buffers(7);
       p.mutable_buffers(21)->set_category(pb::TEMP);
       Step(p, 11)->add_allocs(21);
       Step(p, 11)->add_frees(21);
     }},
    {"QueueGrows", "steady",
     "on stream \"other\" begins with segment \"step\" op 17 (stream_wait), 2 steps back, at its "
     "end, with segment \"step\" op 17 (stream_wait), 1 steps back, at its start",
     [](pb::Plan& p) {
       *p.add_streams() = p.streams(2);
       p.mutable_streams(4)->set_name("other");
       pb::Op& op = *p.mutable_segments(0)->add_ops();
       op.set_stream(4);
       op.set_phase(pb::BACKWARD);
       op.mutable_stream_wait();
     }},
};
INSTANTIATE_TEST_SUITE_P(Order, DisorderedPlan, ::testing::ValuesIn(kOrder), NameOf);

const Mutation kData[] = {
    {"Unwritten", "written", "op 13 (reduce_copy_in, <root>): reads buffer 12",
     [](pb::Plan& p) { Step(p, 9)->set_out(0, 7); }},
    {"NeverWritten", "written", "op 13 (reduce_copy_in, <root>): frees buffer 21, which nothing",
     [](pb::Plan& p) {
       *p.add_buffers() = p.buffers(12);
       Step(p, 9)->add_allocs(21);
       Step(p, 13)->add_frees(21);
     }},
    {"LargerThanItsViews", "view", "buffer 7: has 10 bytes, its largest view ends at 8",
     [](pb::Plan& p) { p.mutable_buffers(7)->set_bytes(10); }},
    {"ShardsOutOfOrder", "gather", "op 5 (gather_copy_in, <root>): does not read its unit's shards",
     [](pb::Plan& p) { Step(p, 5)->mutable_in()->SwapElements(0, 1); }},
    {"OtherUnitsShard", "gather", "op 1 (gather_copy_in, <root>): reads buffer 4",
     [](pb::Plan& p) { Step(p, 1)->set_unit(0); }},
    {"GatherOfOtherUnit", "gather",
     "op 2 (all_gather, <root>): reads buffer 5, expected its unit's shard copied in",
     [](pb::Plan& p) { Step(p, 2)->set_unit(0); }},
    {"CopyOutWithoutGather", "gather", "op 3 (copy_out, block): reads buffer 5",
     [](pb::Plan& p) { Step(p, 2)->mutable_stream_wait(); }},
    {"ReadWithoutCopyOut", "gather", "op 4 (compute relu, block): reads buffer 6",
     [](pb::Plan& p) { p.mutable_buffers(6)->set_unit(0); }},
    {"CopiedIntoTooMany", "gather", "writes 2 buffers for 1 parameters",
     [](pb::Plan& p) {
       p.mutable_buffers(6)->set_bytes(12);
       *p.add_buffers() = p.buffers(6);
       p.mutable_buffers(21)->set_bytes(4);
       Step(p, 3)->add_allocs(21);
       Step(p, 3)->add_out(21);
       Step(p, 4)->set_in_offsets(0, 0);
       Step(p, 8)->add_frees(21);
     }},
    {"ReducesOtherUnit", "reduce", "op 10 (reduce_copy_in, <root>): reads buffer 8, no gradient",
     [](pb::Plan& p) { Step(p, 10)->set_unit(0); }},
    {"ReducesWithoutCopy", "reduce", "op 11 (reduce_scatter, block): reads buffer 9",
     [](pb::Plan& p) { Step(p, 10)->mutable_stream_wait(); }},
    {"FinalizesOtherUnit", "reduce", "op 12 (grad_finalize, <root>): reads buffer 10",
     [](pb::Plan& p) { Step(p, 12)->set_unit(0); }},
    {"GradientForgotten", "optimizer", "does not read the gradient of unit \"<root>\"",
     [](pb::Plan& p) { Update(p, 0)->mutable_in()->RemoveLast(); }},
    {"GradientTwice", "optimizer", "reads a second gradient of unit \"block\"",
     [](pb::Plan& p) { Update(p, 0)->set_in(1, 10); }},
    {"ShardForgotten", "optimizer", "does not first write the shards",
     [](pb::Plan& p) { Update(p, 0)->mutable_out()->SwapElements(0, 1); }},
    {"NoState", "optimizer", "updates buffer 3, no optimizer state",
     [](pb::Plan& p) { Update(p, 0)->set_out(2, 3); }},
    {"OutputCount", "optimizer", "writes 9 buffers, expected 8",
     [](pb::Plan& p) { Update(p, 0)->add_out(15); }},
    {"StateSize", "optimizer", "buffer 16 of parameter \"block.weight\" has 12 bytes, expected 16",
     [](pb::Plan& p) { p.mutable_buffers(16)->set_bytes(12); }},
    {"StateCount", "optimizer", "creates 5 buffers of state, expected 6",
     [](pb::Plan& p) { Init(p)->mutable_out()->RemoveLast(); }},
    {"FinalizedSize", "collective", "buffer 10 has 16 bytes, the op moves 8",
     [](pb::Plan& p) { Step(p, 12)->mutable_grad_finalize()->set_to(pb::BF16); }},
    {"FinalizesTwo", "collective", "reads 2 and writes 0 buffers",
     [](pb::Plan& p) { Step(p, 12)->add_in(9); }},
    {"NoUnit", "unit", "op 11 (reduce_scatter)", [](pb::Plan& p) { Step(p, 11)->clear_unit(); }},
};
INSTANTIATE_TEST_SUITE_P(Data, DisorderedPlan, ::testing::ValuesIn(kData), NameOf);

Mutation Category(const char* name, int buffer, const char* message) {
  return {name, "category", message,
          [buffer](pb::Plan& p) { p.mutable_buffers(buffer)->set_category(pb::TEMP); }};
}

const Mutation kCategories[] = {
    {"Shard", "category", "parameter \"block.weight\": buffer 0 is of category WORKSPACE",
     [](pb::Plan& p) { p.mutable_buffers(0)->set_category(pb::WORKSPACE); }},
    {"Input", "category", "input \"t\": buffer 3 is of category MODULE_BUFFER",
     [](pb::Plan& p) { p.mutable_buffers(3)->set_category(pb::MODULE_BUFFER); }},
    Category("Cast", 4, "writes buffer 4 of category TEMP, expected CAST"),
    Category("Gather", 5, "writes buffer 5 of category TEMP, expected AG_OUTPUT"),
    Category("Unsharded", 6, "writes buffer 6 of category TEMP, expected UNSHARDED_PARAM"),
    Category("Gradient", 8, "reads buffer 8 of category TEMP, expected UNSHARDED_GRAD"),
    Category("ReduceInput", 9, "writes buffer 9 of category TEMP, expected RS_INPUT"),
    Category("ReduceOutput", 10, "writes buffer 10 of category TEMP, expected RS_OUTPUT"),
    Category("State", 15, "writes buffer 15 of category TEMP, expected OPTIMIZER_STATE"),
    {"KeptAsTemporary", "category",
     "op 9 (compute relu, ): frees buffer 7 of category TEMP, which was allocated in FORWARD",
     [](pb::Plan& p) { p.mutable_buffers(7)->set_category(pb::TEMP); }},
    {"NotKept", "category",
     "frees buffer 21 of category ACTIVATION, which was allocated in BACKWARD",
     [](pb::Plan& p) {
       *p.add_buffers() = p.buffers(7);
       Step(p, 7)->add_allocs(21);
       Step(p, 7)->add_frees(21);
     }},
    {"ResidentTemporary", "category", "resident: buffer 3 is of category TEMP",
     [](pb::Plan& p) { p.mutable_buffers(3)->set_category(pb::TEMP); }},
    {"KernelWritesState", "category", "writes buffer 12 of category OPTIMIZER_STATE",
     [](pb::Plan& p) { p.mutable_buffers(12)->set_category(pb::OPTIMIZER_STATE); }},
    {"NotAGradient", "category", "reads buffer 2 of category SHARDED_PARAM, expected SHARDED_GRAD",
     [](pb::Plan& p) { Update(p, 0)->set_in(1, 2); }},
    {"SettledElsewhere", "category", "reads buffer 8 of category CAST",
     [](pb::Plan& p) {
       pb::Settle& settle = *Step(p, 7)->add_settles();
       settle.set_buffer(8);
       settle.set_category(pb::CAST);
     }},
    {"SettlesTheDead", "settle", "op 3 (copy_out, block): settles buffer 8, which is not alive",
     [](pb::Plan& p) {
       pb::Settle& settle = *Step(p, 3)->add_settles();
       settle.set_buffer(8);
       settle.set_category(pb::TEMP);
     }},
    {"SettlesToNone", "settle", "category 0 of buffer 8",
     [](pb::Plan& p) { Step(p, 7)->add_settles()->set_buffer(8); }},
    {"SettlesIndex", "index", "settles buffer 21 of 21",
     [](pb::Plan& p) { Step(p, 7)->add_settles()->set_buffer(21); }},
    {"TooManyStreams", "stream", "65 streams, expected at most 64",
     [](pb::Plan& p) {
       while (p.streams_size() < 65) *p.add_streams() = p.streams(0);
     }},
    {"HostReads", "stream", "op 8 (reshard, block): puts no work on a stream but reads or writes",
     [](pb::Plan& p) { Step(p, 8)->add_in(6); }},
};
INSTANTIATE_TEST_SUITE_P(Categories, DisorderedPlan, ::testing::ValuesIn(kCategories), NameOf);

// The allocator is told of the copy-out's stream: what is queued there ends before the bytes have
// another owner, and nothing else has to see to it.
TEST(PlanCheck, AStreamThatTheAllocatorKnowsOfNeedNotBeWaitedFor) {
  pb::Plan plan = SmallPlan();
  Step(plan, 5)->clear_waits();
  EXPECT_FALSE(CheckPlan(plan).ok());
  plan.mutable_buffers(5)->add_recorded_on(2);
  EXPECT_FALSE(CheckPlan(plan).ok()) << "another stream than the one that uses it last";
  plan.mutable_buffers(5)->add_recorded_on(0);
  EXPECT_TRUE(CheckPlan(plan).ok());
}

// What `steady` finds at first may be what no steady step leaves.
TEST(PlanCheck, AcceptsAQueueThatSettlesInSteady) {
  pb::Plan plan = SmallPlan();
  pb::Segment& sync = *plan.add_segments();
  sync.set_name("sync");
  *sync.add_ops() = plan.segments(2).ops(2);
  plan.mutable_segments(2)->mutable_ops()->RemoveLast();
  plan.mutable_programs(1)->clear_uses();
  for (const int segment : {3, 0, 2, 3}) Use(*plan.mutable_programs(1), segment);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PlanCheck, AcceptsAGradientThatSettles) {
  pb::Plan plan = SmallPlan();
  plan.mutable_buffers(8)->set_category(pb::TEMP);
  pb::Settle& settle = *Step(plan, 7)->add_settles();
  settle.set_buffer(8);
  settle.set_category(pb::UNSHARDED_GRAD);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PlanCheck, CommunicatorsHostAndStreamWaitsOrderOps) {
  pb::Plan plan = SmallPlan();
  // The second all-gather has the first one's end before it through either its stream or its
  // communicator, and the copy-out's wait may be the host's.
  Step(plan, 3)->clear_waits();
  Step(plan, 3)->set_host_waits(0, 2);
  EXPECT_TRUE(CheckPlan(plan).ok());
}

TEST(AnalyzePlan, CountsWhatTheSmallPlanHas) {
  const PlanFacts facts = AnalyzePlan(SmallPlan());
  EXPECT_EQ(facts.ops, 21);
  EXPECT_EQ(facts.buffers, 21);
  EXPECT_EQ(facts.kernels, 2);
  EXPECT_EQ(facts.waits, 10);
  EXPECT_EQ(facts.redundant, 0);
}

TEST(AnalyzePlan, FindsRedundantWaitsByKind) {
  pb::Plan plan = SmallPlan();
  Step(plan, 4)->add_waits(3);   // of its own stream
  Step(plan, 7)->add_waits(2);   // what an earlier op of its stream waited for
  Step(plan, 9)->add_waits(6);   // the same
  Step(plan, 10)->add_waits(7);  // twice
  Step(plan, 11)->add_host_waits(0);
  Step(plan, 15)->mutable_stream_wait()->add_on(2);
  const PlanFacts facts = AnalyzePlan(plan);
  EXPECT_EQ(facts.redundant, 6);
  ASSERT_FALSE(facts.redundant_waits.empty());
  EXPECT_EQ(facts.redundant_waits[0].waiter, "compute");
  EXPECT_EQ(facts.redundant_waits[0].on, "all_gather");
  EXPECT_EQ(facts.redundant_waits[0].count, 2);
  EXPECT_THAT(facts.redundant_waits[0].example, HasSubstr("op 7"));
  std::string kinds;
  for (const RedundantWaits& r : facts.redundant_waits) kinds += r.waiter + ">" + r.on + " ";
  EXPECT_THAT(kinds, HasSubstr("compute>copy_out "));
  EXPECT_THAT(kinds, HasSubstr("reduce_copy_in>compute "));
  EXPECT_THAT(kinds, HasSubstr("host (reduce_scatter)>cast_shard "));
  EXPECT_THAT(kinds, HasSubstr("stream_wait>stream gather "));
  // Without them all the plan is the one it was.
  EXPECT_TRUE(EquivalentPlans(plan, SmallPlan()));
}

TEST(EquivalentPlans, SeesOrderAndWork) {
  const pb::Plan plan = SmallPlan();
  pb::Plan other = plan;
  Step(other, 3)->clear_waits();
  EXPECT_FALSE(EquivalentPlans(plan, other)) << "the copy-out may overtake its gather";
  other = plan;
  Step(other, 9)->set_out(0, 7);
  EXPECT_FALSE(EquivalentPlans(plan, other));
  other = plan;
  other.mutable_segments(0)->mutable_ops()->RemoveLast();  // a release: no work
  other.mutable_buffers(7)->set_bytes(16);
  EXPECT_TRUE(EquivalentPlans(plan, other));
  other.mutable_groups(0)->set_stride(2);
  EXPECT_FALSE(EquivalentPlans(plan, other));
}

}  // namespace
}  // namespace foreshard
