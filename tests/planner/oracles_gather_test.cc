// Facts of PyTorch's FSDP2 about gathers: versions, partial reshard, prefetch lists, checkpoints,
// units that run twice, one rank. Numbers as in oracles_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;

using Names = std::vector<std::string>;

const char* const kVersions[] = {"2.14", "2.15"};
constexpr int kBlocks = 3;

PlanRequest Request(const std::string& torch) {
  PlanRequest request = SmallRequest(4);
  request.torch = torch;
  return request;
}

std::string Block(int i) { return "layers." + std::to_string(i); }

pb::Plan PlanOfBlocks(const PlanRequest& request, int blocks = kBlocks) {
  return PlanOf(TreeModel({.blocks = blocks}), request);
}

size_t GathersIn(const pb::Plan& plan, pb::Phase phase) {
  size_t count = 0;
  for (const std::string& name : StepCollectives(plan, 0, phase)) count += name.starts_with("AG");
  return count;
}

size_t GathersIn(const pb::Plan& plan) {
  return GathersIn(plan, pb::FORWARD) + GathersIn(plan, pb::BACKWARD);
}

TEST(FsdpOracle1, StepOfTorch26HasAsManyGathersAndReductions) {
  const pb::Plan plan = PlanOfBlocks(Request("2.6"));
  EXPECT_EQ(GathersIn(plan), 2u * kBlocks + 1);
  EXPECT_EQ(StepCollectives(plan, 0, pb::BACKWARD).size(), kBlocks + (kBlocks + 1u));
}

TEST(FsdpOracle2, RootOfTorch26IsKeptWhateverItIsTold) {
  PlanRequest request = Request("2.6");
  request.root_reshard_after_forward = true;
  const pb::Plan plan = PlanOfBlocks(request);
  EXPECT_EQ(GathersIn(plan), 2u * kBlocks + 1);
  EXPECT_EQ(Gathers(plan, "<root>").size(), 1u);
}

TEST(FsdpOracle3, EmbeddingThatBackwardDoesNotNeedIsGatheredOnce) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.wrap = "titan";
    request.sharded_in_backward = {"emb"};
    const pb::Plan plan = PlanOfBlocks(request);
    EXPECT_EQ(GathersIn(plan, pb::BACKWARD), static_cast<size_t>(kBlocks));
    EXPECT_EQ(Gathers(plan, "emb").size(), 1u);
    EXPECT_EQ(Reductions(plan, "emb").size(), 1u);
  }
}

TEST(FsdpOracle5, BackwardGathersWhatFewerRanksHaveKept) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.reshard_after_forward = Reshard::Groups(2);
    const pb::Plan plan = PlanOfBlocks(request);
    for (int i = 0; i < kBlocks; ++i) {
      const std::vector<pb::AllGather> gathers = Gathers(plan, Block(i));
      ASSERT_EQ(gathers.size(), 2u);
      EXPECT_EQ(plan.groups(gathers[0].group()).size(), 4);
      EXPECT_EQ(plan.groups(gathers[1].group()).size(), 2);
      EXPECT_EQ(gathers[1].elems_out(), gathers[0].elems_out());
      EXPECT_EQ(gathers[1].elems_in(), 2 * gathers[0].elems_in());
      EXPECT_EQ(plan.groups(Reductions(plan, Block(i)).at(0).group()).size(), 4);
    }
  }
}

struct Nesting {
  bool reentrant;
  bool outside_unit;
};

PlanRequest Checkpointed(const std::string& torch, const Nesting& nesting) {
  PlanRequest request = Request(torch);
  for (int i = 0; i < kBlocks; ++i) request.checkpoint.modules.push_back(Block(i));
  request.checkpoint.reentrant = nesting.reentrant;
  request.checkpoint.outside_unit = nesting.outside_unit;
  return request;
}

TEST(FsdpOracle21, CheckpointsGatherNoMoreThanBackwardDoes) {
  for (const char* torch : kVersions) {
    for (const Nesting nesting :
         {Nesting{false, false}, Nesting{false, true}, Nesting{true, true}}) {
      SCOPED_TRACE(testing::Message() << torch << ", reentrant " << nesting.reentrant
                                      << ", outside " << nesting.outside_unit);
      EXPECT_EQ(GathersIn(PlanOfBlocks(Checkpointed(torch, nesting))), 1u + 2 * kBlocks);
    }
  }
}

TEST(FsdpOracle21, ReentrantCheckpointsAroundUnitsOfTorch26GatherTwiceInBackward) {
  const pb::Plan plan = PlanOfBlocks(Checkpointed("2.6", {true, true}));
  // The root; each block in forward, for its recomputation and for its gradients; and all but the
  // first once more, which the block before it prefetches when it has just finished.
  EXPECT_EQ(GathersIn(plan), 4u * kBlocks);
}

TEST(FsdpOracle22, UnitThatRunsTwiceIsGatheredTwiceEachWayAndReducedOnce) {
  for (const char* torch : kVersions) {
    pb::Model model = TreeModel({.blocks = 1});
    pb::Module& root = *model.mutable_root();
    // emb, layers.0, layers.0 again, norm, head.
    pb::Statement again = root.forward(1);
    *again.mutable_in(0) = root.forward(1).out(0);
    *again.mutable_out(0) = "again";
    *root.mutable_forward(2)->mutable_in(0) = "again";
    *root.add_forward() = again;
    for (int i = root.forward_size() - 1; i > 2; --i)
      root.mutable_forward()->SwapElements(i, i - 1);
    const pb::Plan plan = PlanOf(model, Request(torch));
    EXPECT_THAT(StepCollectives(plan, 0, pb::FORWARD),
                ElementsAre("AG <root>", "AG layers.0", "AG layers.0"));
    EXPECT_EQ(Gathers(plan, "layers.0").size(), 4u);
    EXPECT_EQ(Reductions(plan, "layers.0").size(), 1u);
  }
}

TEST(FsdpOracle24, OneRankHasNoCollectivesAndAllTheirBuffers) {
  for (const char* torch : kVersions) {
    PlanRequest request = SmallRequest(1);
    request.torch = torch;
    const pb::Plan plan = PlanOfBlocks(request);
    EXPECT_THAT(StepCollectives(plan, 0, pb::FORWARD), testing::IsEmpty());
    EXPECT_THAT(StepCollectives(plan, 0, pb::BACKWARD), testing::IsEmpty());
    int64_t inputs = 0;
    int64_t unsharded = 0;
    ForEachStepOp(plan, [&](const pb::Op& op, int) {
      for (const int32_t b : op.allocs()) {
        const pb::Buffer& buffer = plan.buffers(b);
        if (buffer.category() == pb::RS_INPUT) inputs += buffer.bytes();
        if (buffer.category() == pb::UNSHARDED_PARAM) unsharded += buffer.bytes();
      }
    });
    // fp32; blocks of 528 are gathered twice, the root of 176 once.
    EXPECT_EQ(inputs, (kBlocks * 528 + 176) * 4);
    EXPECT_EQ(unsharded, (2 * kBlocks * 528 + 176) * 4);
  }
}

TEST(FsdpOracle24, OneRankOfTorch26TalksToItself) {
  PlanRequest request = SmallRequest(1);
  request.torch = "2.6";
  EXPECT_EQ(GathersIn(PlanOfBlocks(request)), 2u * kBlocks + 1);
}

TEST(FsdpOracle29, ListedPrefetchesSkipWhatIsPending) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.backward_prefetch = {{"layers.3", {"layers.2", "layers.1"}},
                                 {"layers.2", {"layers.1", "layers.0"}},
                                 {"layers.1", {"layers.0"}}};
    const pb::Plan plan = PlanOfBlocks(request, 4);
    // The root has no list and gathers the block before it.
    EXPECT_THAT(
        StepCollectives(plan, 0, pb::BACKWARD),
        ElementsAre("AG layers.3", "AG layers.2", "AG layers.1", "RS layers.3", "AG layers.0",
                    "RS layers.2", "RS layers.1", "RS layers.0", "RS <root>"));
    EXPECT_EQ(Gathers(plan, "layers.2").at(1).reason(), pb::AllGather::PREFETCH_BACKWARD_EXPLICIT);
    EXPECT_EQ(Gathers(plan, "layers.3").at(1).reason(), pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
  }
}

}  // namespace
}  // namespace foreshard
