// What may happen to gradients between autograd and the optimizer: replicas, divisors, sums over
// micro-batches. Each rule is broken by a minimal change of the hand-written plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/plan_edit.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

void ExpectAccepted(const pb::Plan& plan) {
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

// Two replicas of the small plan. The block's reduction divides before (op 11) and after (op 14)
// the reduce-scatter (12) and all-reduce (13).
pb::Plan ReplicatedPlan() {
  pb::Plan plan = SmallPlan();
  plan.mutable_mesh()->set_world_size(4);
  plan.mutable_mesh()->set_replicate_size(2);
  const Status parsed =
      ParseText(R"pb(name: "replicate" size: 2 stride: 2)pb", "group", *plan.add_groups());
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  Insert(plan, 11, R"pb(stream: 3
                        in: 9
                        out: 9
                        unit: 1
                        phase: BACKWARD
                        divide { divisor: 2 elems: 8 dtype: FP32 })pb");
  Insert(plan, 13, R"pb(stream: 3
                        in: 10
                        out: 10
                        unit: 1
                        phase: BACKWARD
                        all_reduce { group: 1 elems: 4 dtype: FP32 reduction: SUM })pb");
  Insert(plan, 14, R"pb(stream: 3
                        in: 10
                        out: 10
                        unit: 1
                        phase: BACKWARD
                        divide { divisor: 2 elems: 4 dtype: FP32 })pb");
  return plan;
}

TEST(ReplicatedPlan, IsAccepted) { ExpectAccepted(ReplicatedPlan()); }

class BrokenReplicatedPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenReplicatedPlan, IsRefusedByItsRule) { ExpectRefused(ReplicatedPlan(), GetParam()); }

void MakePremultiplied(pb::Plan& p, double factor) {
  Step(p, 12)->mutable_reduce_scatter()->set_reduction(pb::ReduceScatter::PREMUL_SUM);
  Step(p, 12)->mutable_reduce_scatter()->set_factor(factor);
}

TEST(ReplicatedPlan, MayMultiplyBeforeItAdds) {
  pb::Plan plan = ReplicatedPlan();
  MakePremultiplied(plan, 0.5);
  ExpectAccepted(plan);
}

const Mutation kReplicas[] = {
    {"StrideOfAGroup", "group", "size 2 with stride 3 is neither a part of 2 shards",
     [](pb::Plan& p) { p.mutable_groups(1)->set_stride(3); }},
    {"PartOfTheReplicas", "group", "size 1 with stride 2",
     [](pb::Plan& p) { p.mutable_groups(1)->set_size(1); }},
    {"GroupOfNobody", "group", "size 0", [](pb::Plan& p) { p.mutable_groups(0)->set_size(0); }},
    {"AllReduceGroup", "index", "group 2 of 2",
     [](pb::Plan& p) { Step(p, 13)->mutable_all_reduce()->set_group(2); }},
    {"AllReduceOverShards", "reduce", "is over 2 ranks with stride 1, expected 2 with stride 2",
     [](pb::Plan& p) { Step(p, 13)->mutable_all_reduce()->set_group(0); }},
    {"ReduceScatterOverReplicas", "reduce", "expected a shard group of 2",
     [](pb::Plan& p) { Step(p, 12)->mutable_reduce_scatter()->set_group(1); }},
    {"GatherOverReplicas", "gather", "expected the 2 neighbours that hold the unit",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->set_group(1); }},
    {"AllReduceReduction", "collective", "neither SUM nor AVG",
     [](pb::Plan& p) {
       Step(p, 13)->mutable_all_reduce()->set_reduction(pb::ReduceScatter::PREMUL_SUM);
     }},
    {"AllReduceSize", "collective", "buffer 10 has 16 bytes, the op moves 12",
     [](pb::Plan& p) { Step(p, 13)->mutable_all_reduce()->set_elems(3); }},
    {"AllReduceInPlace", "collective", "expected it to work in place",
     [](pb::Plan& p) {
       *p.add_buffers() = p.buffers(10);
       Step(p, 13)->set_out(0, 21);
       Step(p, 13)->add_allocs(21);
       Step(p, 13)->add_frees(21);
     }},
    {"AllReduceBelongsToAUnit", "unit", "belongs to no unit",
     [](pb::Plan& p) { Step(p, 13)->clear_unit(); }},
    {"AllReduceOfAnotherUnit", "reduce", "no reduced shard of its unit",
     [](pb::Plan& p) { Step(p, 13)->set_unit(0); }},
    {"AllReduceFirst", "reduce", "reads buffer 9, no reduced shard",
     [](pb::Plan& p) {
       Step(p, 13)->set_in(0, 9);
       Step(p, 13)->set_out(0, 9);
       Step(p, 13)->mutable_all_reduce()->set_elems(8);
     }},
    {"NormsInClipAreSummed", "collective", "the reduction of norms is not SUM",
     [](pb::Plan& p) {
       Step(p, 13)->set_phase(pb::CLIP);
       Step(p, 13)->mutable_all_reduce()->set_reduction(pb::ReduceScatter::AVG);
     }},
    {"NormsInClipStayInAReplica", "clip", "is over 2 ranks with stride 2, expected 2 with stride 1",
     [](pb::Plan& p) { Step(p, 13)->set_phase(pb::CLIP); }},
    {"DivisorZero", "reduce", "divides by 0",
     [](pb::Plan& p) { Step(p, 11)->mutable_divide()->set_divisor(0); }},
    {"DivisorInfinite", "reduce", "divides by inf",
     [](pb::Plan& p) {
       Step(p, 11)->mutable_divide()->set_divisor(std::numeric_limits<double>::infinity());
     }},
    {"DivideSize", "collective", "the op moves 28",
     [](pb::Plan& p) { Step(p, 11)->mutable_divide()->set_elems(7); }},
    {"DividesAGradient", "reduce", "reads buffer 12, no reduced shard",
     [](pb::Plan& p) {
       Step(p, 14)->set_in(0, 12);
       Step(p, 14)->set_out(0, 12);
       Step(p, 14)->set_unit(0);
       Step(p, 14)->mutable_divide()->set_dtype(pb::BF16);
       Step(p, 14)->add_waits(9);
       Step(p, 16)->add_in_versions(2);
     }},
    {"FactorMissing", "collective", "the factor of PREMUL_SUM is 0",
     [](pb::Plan& p) { MakePremultiplied(p, 0); }},
    {"FactorNegative", "collective", "the factor of PREMUL_SUM is -1",
     [](pb::Plan& p) { MakePremultiplied(p, -1); }},
    {"FactorOfAnAverage", "collective", "only PREMUL_SUM takes",
     [](pb::Plan& p) { Step(p, 12)->mutable_reduce_scatter()->set_factor(0.5); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenReplicatedPlan, ::testing::ValuesIn(kReplicas), NameOf);

// The small plan with a second micro-batch, which reduces the block's gradient once more: copy-in
// (op 12) and reduce-scatter (13) into buffer 22.
pb::Plan TwiceReduced() {
  pb::Plan plan = SmallPlan();
  AddBuffer(plan, "bytes: 32 category: RS_INPUT stream: 3 unit: 1");   // 21
  AddBuffer(plan, "bytes: 16 category: RS_OUTPUT stream: 3 unit: 1");  // 22
  Step(plan, 10)->clear_frees();
  Insert(plan, 12, R"pb(stream: 3
                        allocs: 21
                        in: 8
                        out: 21
                        frees: 8
                        unit: 1
                        phase: BACKWARD
                        micro_batch: 1
                        reduce_copy_in { elems_in: 6 elems_out: 8 from: BF16 to: FP32 })pb");
  Insert(plan, 13,
         R"pb(stream: 3
              allocs: 22
              in: 21
              out: 22
              frees: 21
              unit: 1
              phase: BACKWARD
              micro_batch: 1
              reduce_scatter { group: 0 elems_in: 8 elems_out: 4 dtype: FP32 reduction: AVG })pb");
  return plan;
}

// Op 15 adds it to the gradient.
pb::Plan AccumulatedPlan() {
  pb::Plan plan = TwiceReduced();
  Insert(plan, 15, R"pb(stream: 3
                        in: [ 22, 10 ]
                        out: 10
                        frees: 22
                        unit: 1
                        phase: BACKWARD
                        micro_batch: 1
                        grad_finalize { from: FP32 to: FP32 accumulate: true })pb");
  return plan;
}

// Op 14 adds it to the reduced shard, before that is the gradient.
pb::Plan PartialPlan() {
  pb::Plan plan = TwiceReduced();
  Insert(plan, 14, R"pb(stream: 3
                        in: [ 10, 22 ]
                        out: 10
                        frees: 22
                        unit: 1
                        phase: BACKWARD
                        micro_batch: 1
                        add_reduced { elems: 4 dtype: FP32 })pb");
  return plan;
}

TEST(AccumulatedPlan, IsAccepted) { ExpectAccepted(AccumulatedPlan()); }
TEST(PartialPlan, IsAccepted) { ExpectAccepted(PartialPlan()); }

TEST(AccumulatedPlan, MayCastBeforeItAdds) {
  pb::Plan plan = AccumulatedPlan();
  AddBuffer(plan, "bytes: 16 category: RS_OUTPUT stream: 3 unit: 1");  // 23
  Insert(plan, 15, R"pb(stream: 3
                        allocs: 23
                        in: 22
                        out: 23
                        frees: 22
                        unit: 1
                        phase: BACKWARD
                        micro_batch: 1
                        grad_finalize { from: FP32 to: FP32 })pb");
  Step(plan, 16)->set_in(0, 23);
  Step(plan, 16)->set_frees(0, 23);
  ExpectAccepted(plan);
}

TEST(AccumulatedPlan, AMicroBatchMayLeaveTheReductionToALaterOne) {
  pb::Plan plan = SmallPlan();
  for (const int op : {10, 11, 12, 13, 14}) Step(plan, op)->set_micro_batch(1);
  ExpectAccepted(plan);
}

class BrokenAccumulatedPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenAccumulatedPlan, IsRefusedByItsRule) { ExpectRefused(AccumulatedPlan(), GetParam()); }

const Mutation kAccumulated[] = {
    {"TwiceInAMicroBatch", "reduce", "unit \"block\" is reduced twice in micro-batch 0",
     [](pb::Plan& p) { Step(p, 13)->set_micro_batch(0); }},
    {"GatheredAfterTheLastReduction", "reduce",
     "unit \"block\" is gathered in micro-batch 2 but not reduced in it or later",
     [](pb::Plan& p) { Step(p, 2)->set_micro_batch(2); }},
    {"OtherOrder", "collective", "write the second of them in place",
     [](pb::Plan& p) { Step(p, 15)->mutable_in()->SwapElements(0, 1); }},
    {"OnlyOne", "collective", "does not read two buffers",
     [](pb::Plan& p) { Step(p, 15)->mutable_in()->RemoveLast(); }},
    {"CastsAndAdds", "collective", "adds to a gradient and casts at once",
     [](pb::Plan& p) { Step(p, 15)->mutable_grad_finalize()->set_from(pb::BF16); }},
    {"OtherSize", "collective", "the op moves 16",
     [](pb::Plan& p) {
       Step(p, 15)->set_in(1, 14);
       Step(p, 15)->set_out(0, 14);
     }},
    {"AddsWhatIsNotReduced", "reduce", "adds buffer 0, no reduced shard of its unit",
     [](pb::Plan& p) { Step(p, 15)->set_in(0, 0); }},
    {"NothingToAddTo", "reduce", "adds to buffer 10, not the gradient of an earlier micro-batch",
     [](pb::Plan& p) { p.mutable_segments(0)->mutable_ops()->DeleteSubrange(14, 1); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenAccumulatedPlan, ::testing::ValuesIn(kAccumulated), NameOf);

class BrokenPartialPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenPartialPlan, IsRefusedByItsRule) { ExpectRefused(PartialPlan(), GetParam()); }

const Mutation kPartial[] = {
    {"OtherOrder", "collective", "write the first of them in place",
     [](pb::Plan& p) { Step(p, 14)->mutable_in()->SwapElements(0, 1); }},
    {"ToItself", "collective", "does not read two buffers",
     [](pb::Plan& p) { Step(p, 14)->set_in(1, 10); }},
    {"Size", "collective", "buffer 10 has 16 bytes, the op moves 12",
     [](pb::Plan& p) { Step(p, 14)->mutable_add_reduced()->set_elems(3); }},
    {"NotReduced", "reduce", "reads buffer 0, no reduced shard",
     [](pb::Plan& p) { Step(p, 14)->set_in(1, 0); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenPartialPlan, ::testing::ValuesIn(kPartial), NameOf);

}  // namespace
}  // namespace foreshard
