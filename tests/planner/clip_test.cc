// Clipping by norm: what is sent and held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

pb::Plan ClippedPlan(int world, int replicas = 1, bool foreach = true) {
  PlanRequest request = SmallRequest(world);
  request.replicate_size = replicas;
  request.optimizer = "adamw";
  request.clip = ClipRequest{0.5, foreach};
  return PlanOf(TreeModel({}), request);
}

const pb::Segment& ClipOf(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    if (segment.name() == "clip") return segment;
  }
  ADD_FAILURE() << "nothing clips";
  return pb::Segment::default_instance();
}

int64_t Bytes(const pb::Plan& plan, const google::protobuf::RepeatedField<int32_t>& buffers) {
  int64_t bytes = 0;
  for (const int b : buffers) bytes += plan.buffers(b).bytes();
  return bytes;
}

// Vectors of one element for each gradient: three when they are sent (the norms, these in one
// tensor, their squares) and six at most (what came, what wraps it, the roots). The trace
// f2_adamw_foreach_clip has 16 gradients, 192 bytes and 384.
TEST(Clip, HoldsVectorsOfNorms) {
  const pb::Plan plan = ClippedPlan(4);
  const int64_t vector = 4 * int64_t{plan.parameters_size()};
  const pb::Segment& clip = ClipOf(plan);
  ASSERT_EQ(clip.ops_size(), 3);
  const pb::Op& norms = clip.ops(0);
  const pb::Op& reduce = clip.ops(1);
  const pb::Op& scale = clip.ops(2);
  ASSERT_TRUE(norms.has_clip_norms() && reduce.has_all_reduce() && scale.has_clip_scale());
  EXPECT_EQ(Bytes(plan, norms.allocs()), 3 * vector);
  EXPECT_EQ(norms.out_size(), plan.parameters_size() + 2);
  EXPECT_EQ(reduce.all_reduce().elems(), plan.parameters_size());
  EXPECT_EQ(reduce.all_reduce().reduction(), pb::ReduceScatter::SUM);
  EXPECT_EQ(Bytes(plan, scale.allocs()), 3 * vector);
  EXPECT_EQ(Bytes(plan, scale.frees()), 6 * vector);
  EXPECT_EQ(scale.clip_scale().max_norm(), 0.5);
  EXPECT_EQ(scale.out_size(), plan.units_size());
  EXPECT_EQ(plan.decisions().clip().max_norm(), 0.5);
}

TEST(Clip, LoopsWhereForeachIsOff) {
  EXPECT_FALSE(ClipOf(ClippedPlan(2)).ops(0).clip_norms().loop());
  const pb::Plan plan = ClippedPlan(2, 1, false);
  EXPECT_TRUE(ClipOf(plan).ops(0).clip_norms().loop());
  EXPECT_TRUE(ClipOf(plan).ops(2).clip_scale().loop());
  EXPECT_TRUE(plan.decisions().clip().loop());
}

TEST(Clip, OfReplicasSumsOverOneOfThem) {
  const pb::Plan plan = ClippedPlan(6, 2);
  const pb::AllReduce& reduce = ClipOf(plan).ops(1).all_reduce();
  EXPECT_EQ(plan.groups(reduce.group()).size(), 3);
  EXPECT_EQ(plan.groups(reduce.group()).stride(), 1);
}

TEST(Clip, OneRankSendsNothing) {
  const pb::Plan plan = ClippedPlan(1);
  const pb::Segment& clip = ClipOf(plan);
  ASSERT_EQ(clip.ops_size(), 2);
  EXPECT_EQ(Bytes(plan, clip.ops(0).allocs()), 2 * 4 * plan.parameters_size());
  EXPECT_EQ(Bytes(plan, clip.ops(1).allocs()), 4);
}

// The optimizer makes its state after it, at the first step.
TEST(Clip, StandsBetweenBackwardAndOptimizer) {
  const pb::Plan plan = ClippedPlan(2);
  std::vector<std::string> names;
  for (const pb::SegmentUse& use : plan.programs(0).uses()) {
    names.push_back(plan.segments(use.segment()).name());
  }
  EXPECT_THAT(names, testing::ElementsAre("step", "clip", "optimizer_init", "optimizer"));
}

}  // namespace
}  // namespace foreshard
