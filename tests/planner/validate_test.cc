#include "planner/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

// The message for a request that `change` makes of a good one.
template <typename Change>
std::string Refusal(Change change) {
  PlanRequest request = SmallRequest(8);
  EXPECT_TRUE(CheckRequest(request).ok());
  change(request);
  const StatusOr<pb::Plan> plan = MakePlan(TreeModel({.blocks = 2}), request);
  EXPECT_FALSE(plan.ok());
  if (plan.ok()) return "";
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  return plan.status().message();
}

TEST(LegalRequest, ReplicasDivideTheRanks) {
  for (const int replicas : {0, -1, 3, 16}) {
    EXPECT_THAT(Refusal([&](PlanRequest& r) { r.replicate_size = replicas; }),
                HasSubstr(std::to_string(replicas) + " replicas, expected a number that divides"));
  }
}

TEST(LegalRequest, ReshardingGroupsDivideAShardGroup) {
  for (const int ranks : {3, 5, 16}) {
    EXPECT_THAT(Refusal([&](PlanRequest& r) { r.reshard_after_forward = Reshard::Groups(ranks); }),
                HasSubstr("a number that divides the 8 ranks of a shard group"));
  }
  // 8 divides the world, not the shard group of 4.
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.replicate_size = 2;
                r.reshard_after_forward = Reshard::Groups(8);
              }),
              HasSubstr("divides the 4 ranks of a shard group"));
}

TEST(LegalRequest, PrefetchIsOfUnits) {
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.forward_prefetch = {{"layers.0.w1", {"layers.1"}}};
              }),
              HasSubstr("forward-prefetch: module \"layers.0.w1\" is not wrapped"));
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.backward_prefetch = {{"layers.1", {"layer.0"}}};
              }),
              HasSubstr("(did you mean \"layers.0\"?)"));
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.forward_prefetch = {{"layers.0", {"layers.1"}}, {"layers.0", {}}};
              }),
              HasSubstr("module \"layers.0\" has two lists"));
  EXPECT_THAT(Refusal([](PlanRequest& r) { r.forward_prefetch_ahead = -1; }),
              HasSubstr("found -1 and 0 units ahead"));
  EXPECT_THAT(Refusal([](PlanRequest& r) { r.sharded_in_backward = {"head"}; }),
              HasSubstr("no-unshard-in-backward: module \"head\" is not wrapped"));
}

TEST(LegalRequest, NumbersArePositive) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, infinity}) {
    EXPECT_THAT(Refusal([&](PlanRequest& r) { r.gradient_divide_factor = bad; }),
                HasSubstr("divide-factor: found"));
    EXPECT_THAT(Refusal([&](PlanRequest& r) { r.clip = ClipRequest{.max_norm = bad}; }),
                HasSubstr("clip: found norm"));
  }
  EXPECT_THAT(Refusal([](PlanRequest& r) { r.reduce_input_buffers = 0; }),
              HasSubstr("reduce-buffers: found 0, expected at least 1"));
  for (const int count : {0, -1, 1 << 20}) {
    EXPECT_THAT(Refusal([&](PlanRequest& r) { r.micro_batches.count = count; }),
                HasSubstr("micro-batches: found " + std::to_string(count)));
  }
}

TEST(LegalRequest, PlacementsNameADimension) {
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.shard_placements = {{"*", -1, 0}};
              }),
              HasSubstr("shard-dim: found \"*\" along -1"));
  EXPECT_THAT(Refusal([](PlanRequest& r) {
                r.shard_placements = {{"emb.weight", 1, 2}};
                r.world_size = 3;
              }),
              HasSubstr("emb.weight cannot be cut along dimension 1"));
}

TEST(LegalRequest, ParametersAreFloats) {
  EXPECT_THAT(Refusal([](PlanRequest& r) { r.original_dtype = DType::kInt64; }),
              HasSubstr("int64 is none of parameters and gradients"));
  EXPECT_THAT(Refusal([](PlanRequest& r) { r.output_dtype = DType::kBool; }),
              HasSubstr("bool is none of parameters and gradients"));
}

}  // namespace
}  // namespace foreshard
