// Buckets, broadcasts and who updates what: each rule broken by a minimal change of the
// hand-written plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/bucket_plan.h"
#include "tests/proto/plan_edit.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

pb::Plan BucketPlan() {
  pb::Plan plan;
  const Status parsed = ParseText(kBucketPlan, "bucket_plan.h", plan);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return plan;
}

TEST(BucketPlan, IsAccepted) {
  const Status status = CheckPlan(BucketPlan());
  EXPECT_TRUE(status.ok()) << status.message();
}

// The optimizer reads the bucket, and gradients go as soon as they have been copied in.
TEST(BucketPlan, GradientsMayBePartsOfTheBucket) {
  pb::Plan plan = BucketPlan();
  pb::Segment& step = *plan.mutable_segments(0);
  Step(plan, 1)->add_frees(3);
  Step(plan, 3)->add_frees(4);
  pb::Op& update = *Step(plan, 7);
  update.set_in(0, 2);
  update.set_in(1, 2);
  update.add_in_offsets(6);
  update.add_in_offsets(0);
  update.add_waits(4);
  Step(plan, 11)->clear_frees();
  step.mutable_ops()->DeleteSubrange(5, 2);
  step.mutable_ops(6)->set_waits(0, 5);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

class BucketRule : public testing::TestWithParam<Mutation> {};

TEST_P(BucketRule, RefusesABrokenPlan) { ExpectRefused(BucketPlan(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    All, BucketRule,
    testing::Values(
        Mutation{"PartBeyondTheBucket", "bucket", "not inside",
                 [](pb::Plan& p) { Step(p, 1)->mutable_bucket_copy_in()->set_offset(7); }},
        Mutation{"OtherElements", "bucket", "not those of parameter \"a\"",
                 [](pb::Plan& p) { Step(p, 1)->mutable_bucket_copy_in()->set_elems(5); }},
        Mutation{"FrozenParameter", "bucket", "is not trained",
                 [](pb::Plan& p) {
                   p.mutable_parameters(0)->set_frozen(true);
                   p.mutable_units(0)->set_grad_padded_shard_numel(6);
                 }},
        Mutation{"NoFactor", "bucket", "multiplies by 0",
                 [](pb::Plan& p) { Step(p, 1)->mutable_bucket_copy_in()->set_factor(0); }},
        Mutation{"PartsOverlap", "bucket", "overlaps the gradient of \"a\"",
                 [](pb::Plan& p) { Step(p, 3)->mutable_bucket_copy_in()->set_offset(3); }},
        Mutation{"NotFilled", "bucket", "gradients fill 6",
                 [](pb::Plan& p) {
                   p.mutable_segments(0)->mutable_ops(3)->mutable_release();
                   p.mutable_segments(0)->mutable_ops(3)->clear_stream();
                   p.mutable_segments(0)->mutable_ops(3)->clear_in();
                   p.mutable_segments(0)->mutable_ops(3)->clear_out();
                   Step(p, 4)->set_waits(0, 2);
                 }},
        Mutation{"AMean", "bucket", "does not add up",
                 [](pb::Plan& p) {
                   Step(p, 4)->mutable_all_reduce()->set_reduction(pb::ReduceScatter::AVG);
                 }},
        Mutation{"CopiedOutOfTheWrongPlace", "bucket", "does not copy the reduced gradient",
                 [](pb::Plan& p) { Step(p, 6)->mutable_bucket_copy_out()->set_offset(0); }},
        Mutation{"CopiedOutElsewhere", "bucket", "does not copy the reduced gradient",
                 [](pb::Plan& p) { Step(p, 6)->set_out(0, 4); }},
        Mutation{"ReducedTwice", "bucket", "was not copied in since",
                 [](pb::Plan& p) {
                   Insert(p, 5, R"pb(stream: 1
                                     in: 2
                                     out: 2
                                     unit: 0
                                     phase: BACKWARD
                                     all_reduce { elems: 12 dtype: FP32 reduction: SUM })pb");
                 }},
        Mutation{"GradientsSwapped", "bucket", "does not read the reduced gradient of \"a\"",
                 [](pb::Plan& p) { Step(p, 7)->mutable_in()->SwapElements(0, 1); }},
        Mutation{"BroadcastMissing", "broadcast", "\"b\", which rank 1 has updated",
                 [](pb::Plan& p) { p.mutable_segments(0)->mutable_ops()->DeleteSubrange(9, 1); }},
        Mutation{"BroadcastFromAnotherRank", "broadcast", "from rank 0, which rank 1",
                 [](pb::Plan& p) { Step(p, 9)->mutable_broadcast()->set_root(0); }},
        Mutation{"BroadcastTwice", "broadcast", "nobody has updated",
                 [](pb::Plan& p) {
                   Step(p, 9)->set_in(0, 0);
                   Step(p, 9)->set_out(0, 0);
                 }},
        Mutation{"NoSuchRoot", "broadcast", "the root is 2 of 2",
                 [](pb::Plan& p) { Step(p, 9)->mutable_broadcast()->set_root(2); }},
        Mutation{"NoSuchOwner", "owner", "one of 2 ranks",
                 [](pb::Plan& p) { Step(p, 7)->mutable_optimizer_step()->set_owners(1, 2); }},
        Mutation{"OwnersOfSome", "owner", "for each of 2 trainable parameters",
                 [](pb::Plan& p) {
                   Step(p, 7)->mutable_optimizer_step()->mutable_owners()->RemoveLast();
                 }},
        Mutation{"ElementsOfAll", "optimizer", "updates 12 elements",
                 [](pb::Plan& p) { Step(p, 7)->mutable_optimizer_step()->set_elems(12); }},
        Mutation{"OptimizerAhead", "order", "optimizer_step",
                 [](pb::Plan& p) { Step(p, 8)->clear_waits(); }}),
    NameOf);

}  // namespace
}  // namespace foreshard
