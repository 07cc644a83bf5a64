// Facts of PyTorch's FSDP2 about reductions: dtypes and factors, replicas, accumulation, clipping.
// Numbers as in oracles_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::Each;
using testing::ElementsAre;

using Names = std::vector<std::string>;

const char* const kVersions[] = {"2.14", "2.15"};

PlanRequest Request(const std::string& torch) {
  PlanRequest request = SmallRequest(4);
  request.torch = torch;
  return request;
}

// Ops of a micro-batch of the steady step, with a given kind.
template <typename Has>
std::vector<const pb::Op*> OpsWith(const pb::Plan& plan, int micro_batch, Has has) {
  std::vector<const pb::Op*> found;
  ForEachStepOp(plan, [&](const pb::Op& op, int of) {
    if (of == micro_batch && has(op)) found.push_back(&op);
  });
  return found;
}

Names BackwardCollectives(const pb::Plan& plan, int micro_batch) {
  Names names;
  for (const std::string& name : StepCollectives(plan, micro_batch, pb::BACKWARD)) {
    if (!name.starts_with("AG")) names.push_back(name);
  }
  return names;
}

TEST(FsdpOracle13, Fp16WithoutAReduceDtypeIsDividedBeforeAndAfterASum) {
  PlanRequest request = Request("2.14");
  request.param_dtype = DType::kFp16;
  request.reduce_dtype = std::nullopt;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  for (const pb::Unit& unit : plan.units()) {
    const pb::ReduceScatter reduce = Reductions(plan, unit.name()).at(0);
    EXPECT_EQ(reduce.dtype(), pb::FP16);
    EXPECT_EQ(reduce.reduction(), pb::ReduceScatter::SUM);
  }
  // 4 ranks in two equal factors, before and after the sum of each of three units.
  const auto divides = OpsWith(plan, 0, [](const pb::Op& op) { return op.has_divide(); });
  ASSERT_EQ(divides.size(), 6u);
  for (const pb::Op* op : divides) EXPECT_EQ(op->divide().divisor(), 2);
  for (const pb::Op* op :
       OpsWith(plan, 0, [](const pb::Op& op) { return op.has_grad_finalize(); })) {
    EXPECT_EQ(op->grad_finalize().to(), pb::FP32);
  }
}

TEST(FsdpOracle13, SinceTorch215Fp16IsReducedInTheOriginalDtype) {
  PlanRequest request = Request("2.15");
  request.param_dtype = DType::kFp16;
  request.reduce_dtype = std::nullopt;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  for (const pb::Unit& unit : plan.units()) {
    const pb::ReduceScatter reduce = Reductions(plan, unit.name()).at(0);
    EXPECT_EQ(reduce.dtype(), pb::FP32);
    EXPECT_EQ(reduce.reduction(), pb::ReduceScatter::AVG);
  }
  EXPECT_THAT(OpsWith(plan, 0, [](const pb::Op& op) { return op.has_divide(); }),
              testing::IsEmpty());
}

TEST(FsdpOracle13, DivideFactorOfOneIsAPremultipliedSum) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.gradient_divide_factor = 1;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    for (const pb::Unit& unit : plan.units()) {
      const pb::ReduceScatter reduce = Reductions(plan, unit.name()).at(0);
      EXPECT_EQ(reduce.reduction(), pb::ReduceScatter::PREMUL_SUM);
      EXPECT_EQ(reduce.factor(), 1);
    }
  }
}

TEST(FsdpOracle6, ReplicasShardOverFewerRanks) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.replicate_size = 2;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    // 10 rows of 8 on 2 ranks are 5 each, and nothing is padded: 2 (40 + 4 + 4 + 40).
    EXPECT_EQ(Gathers(plan, "<root>").at(0).elems_out(), 176);
    EXPECT_EQ(Reductions(plan, "<root>").at(0).elems_in(), 176);
    EXPECT_EQ(Reductions(plan, "<root>").at(0).elems_out(), 88);
  }
}

TEST(FsdpOracle14, ReplicasAddEachUnitsShardAfterItsReduction) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.replicate_size = 2;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    EXPECT_THAT(BackwardCollectives(plan, 0),
                ElementsAre("RS layers.1", "AR layers.1", "RS layers.0", "AR layers.0", "RS <root>",
                            "AR <root>"));
    for (const pb::Op* op :
         OpsWith(plan, 0, [](const pb::Op& op) { return op.has_all_reduce(); })) {
      EXPECT_EQ(op->all_reduce().elems(), plan.units(op->unit()).grad_padded_shard_numel());
      const pb::Group& group = plan.groups(op->all_reduce().group());
      EXPECT_EQ(group.size(), 2);
      EXPECT_EQ(group.stride(), 2);  // ranks 0 and 2 hold the same shard, and 1 and 3
    }
  }
}

TEST(FsdpOracle14, WithoutAllReduceAMicroBatchHasNoGradients) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.replicate_size = 2;
    request.micro_batches.count = 2;
    request.micro_batches.all_reduce = false;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    EXPECT_THAT(BackwardCollectives(plan, 0),
                ElementsAre("RS layers.1", "RS layers.0", "RS <root>"));
    EXPECT_EQ(BackwardCollectives(plan, 1).size(), 6u);
    const auto is_finalize = [](const pb::Op& op) { return op.has_grad_finalize(); };
    EXPECT_EQ(OpsWith(plan, 0, is_finalize).size(), 0u);
    EXPECT_EQ(OpsWith(plan, 1, is_finalize).size(), 3u);
    // What the first has reduced is added to what the second has, before the all-reduce.
    EXPECT_EQ(OpsWith(plan, 1, [](const pb::Op& op) { return op.has_add_reduced(); }).size(), 3u);
  }
}

TEST(FsdpOracle15, MicroBatchWithoutSyncReducesNothingAndTheNextInFp32) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.param_dtype = DType::kBf16;
    const pb::Plan once = PlanOf(TreeModel({.blocks = 2}), request);
    request.micro_batches.count = 2;
    request.micro_batches.reduce = false;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    const auto is_copy_in = [](const pb::Op& op) { return op.has_reduce_copy_in(); };
    EXPECT_THAT(BackwardCollectives(plan, 0), testing::IsEmpty());
    EXPECT_EQ(OpsWith(plan, 0, is_copy_in).size(), 0u);
    EXPECT_EQ(BackwardCollectives(plan, 1), BackwardCollectives(once, 0));
    const auto synced = OpsWith(plan, 1, is_copy_in);
    const auto expected = OpsWith(once, 0, is_copy_in);
    ASSERT_EQ(synced.size(), expected.size());
    for (size_t i = 0; i < synced.size(); ++i) {
      EXPECT_THAT(synced[i]->reduce_copy_in().from(), Each(static_cast<int>(pb::FP32)));
      EXPECT_EQ(synced[i]->reduce_copy_in().elems_in(), expected[i]->reduce_copy_in().elems_in());
      EXPECT_EQ(synced[i]->reduce_copy_in().elems_out(), expected[i]->reduce_copy_in().elems_out());
    }
  }
}

TEST(FsdpOracle27, ClippingIsOneAllReduceOfANumberPerGradient) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.optimizer = "adamw";
    request.clip = ClipRequest();
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    EXPECT_THAT(StepCollectives(plan, 0, pb::CLIP), ElementsAre("AR"));
    EXPECT_THAT(StepCollectives(plan, 0, pb::OPTIMIZER), testing::IsEmpty());
    for (const pb::Op* op :
         OpsWith(plan, 0, [](const pb::Op& op) { return op.has_all_reduce(); })) {
      EXPECT_EQ(op->all_reduce().elems(), 2 * 4 + 4);  // parameters of the blocks and the root
      EXPECT_EQ(op->all_reduce().dtype(), pb::FP32);
      EXPECT_EQ(op->all_reduce().reduction(), pb::ReduceScatter::SUM);
      EXPECT_EQ(plan.groups(op->all_reduce().group()).size(), 4);
    }
  }
}

}  // namespace
}  // namespace foreshard
