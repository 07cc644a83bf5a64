// Facts of PyTorch's FSDP1 that traces cannot show or show in passing: flat layouts, what is
// refused, shards on the host. Traces hold the rest (tests/golden).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

PlanRequest Request(int world, const std::string& strategy = "full_shard") {
  PlanRequest request = SmallRequest(world);
  request.strategy = strategy;
  return request;
}

std::string WhyRefused(const PlanRequest& request) {
  const StatusOr<pb::Plan> plan = MakePlan(TreeModel({.blocks = 2}), request);
  return plan.ok() ? "" : std::string(plan.status().message());
}

int64_t Numel(const pb::Parameter& p) {
  int64_t numel = 1;
  for (const int64_t size : p.shape()) numel *= size;
  return numel;
}

TEST(Fsdp1, ParametersStandOneAfterTheOther) {
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), Request(3));
  for (const pb::Unit& unit : plan.units()) {
    int64_t end = 0;
    for (const int p : unit.parameters()) {
      EXPECT_EQ(plan.parameters(p).flat_offset(), end);
      end += Numel(plan.parameters(p));
    }
    EXPECT_EQ(unit.flat().numel(), end);
    EXPECT_EQ(unit.padded_shard_numel(), (end + 2) / 3);
  }
}

// 16 bytes are 4 elements of fp32; the whole is a multiple of the ranks.
TEST(Fsdp1, OriginalParametersAreAligned) {
  PlanRequest request = Request(3);
  request.fsdp1.use_orig_params = true;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  for (const pb::Unit& unit : plan.units()) {
    int64_t end = 0;
    for (const int p : unit.parameters()) {
      EXPECT_EQ(plan.parameters(p).flat_offset(), (end + 3) / 4 * 4);
      end = plan.parameters(p).flat_offset() + Numel(plan.parameters(p));
    }
    EXPECT_EQ(unit.flat().numel(), (end + 2) / 3 * 3);
  }
}

TEST(Fsdp1, OneRankSharesWithNobody) {
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), Request(1));
  EXPECT_EQ(plan.mesh().shard_size(), 1);
  int reductions = 0;
  ForEachStepOp(plan, [&](const pb::Op& op, int) {
    EXPECT_FALSE(op.has_all_gather() || op.has_reduce_scatter());
    reductions += op.has_all_reduce() ? 1 : 0;
  });
  EXPECT_EQ(reductions, 3);
}

// Both prefetch and the unit itself ask: 3 units, of which the root is there in backward.
TEST(Fsdp1, EveryUnshardCopiesTheShardFromTheHost) {
  PlanRequest request = Request(2);
  request.cpu_offload = true;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  int copies = 0;
  int gathers = 0;
  int to_host = 0;
  ForEachStepOp(plan, [&](const pb::Op& op, int) {
    copies += op.has_copy_to_device() ? 1 : 0;
    gathers += op.has_all_gather() ? 1 : 0;
    to_host += op.has_copy_to_host() ? 1 : 0;
  });
  EXPECT_EQ(gathers, 5);
  EXPECT_EQ(copies, 6);
  EXPECT_EQ(to_host, 3);
}

// As on one node, where nobody has said how many replicas there are.
TEST(Fsdp1, HybridOfOneReplicaReducesOverItself) {
  int reductions = 0;
  ForEachStepOp(PlanOf(TreeModel({.blocks = 2}), Request(4, "hybrid_shard")),
                [&](const pb::Op& op, int) { reductions += op.has_all_reduce(); });
  EXPECT_EQ(reductions, 3);
}

TEST(Fsdp1, RefusesReplicasThatNothingIsSharedWithin) {
  PlanRequest request = Request(4, "hybrid_shard");
  request.replicate_size = 4;
  EXPECT_THAT(WhyRefused(request), HasSubstr("shard groups of one rank"));
  request.replicate_size = 2;
  EXPECT_EQ(WhyRefused(request), "");
}

TEST(Fsdp1, RefusesToLoseGradientsOnTheHost) {
  PlanRequest request = Request(2);
  request.cpu_offload = true;
  request.micro_batches.count = 2;
  EXPECT_THAT(WhyRefused(request), HasSubstr("no_sync"));
  request.micro_batches.reduce = false;
  EXPECT_EQ(WhyRefused(request), "");
}

TEST(Fsdp1, RefusesReentrantCheckpointsOfPartsOfAUnit) {
  PlanRequest request = Request(2);
  request.checkpoint.modules = {"layers.0", "layers.1"};
  request.checkpoint.reentrant = true;
  EXPECT_EQ(WhyRefused(request), "");
  request.wrap = "whole";
  EXPECT_THAT(WhyRefused(request), HasSubstr("reentrant"));
  request.checkpoint.reentrant = false;
  EXPECT_EQ(WhyRefused(request), "");
}

TEST(Fsdp1, RefusesUnitsOfSeveralModules) {
  PlanRequest request = Request(2);
  request.wrap_calls = {{{"layers.0", "layers.1"}, std::nullopt}, {{""}, std::nullopt}};
  EXPECT_THAT(WhyRefused(request), HasSubstr("wrap"));
}

}  // namespace
}  // namespace foreshard
