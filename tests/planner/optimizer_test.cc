// What each optimizer is told, keeps and holds while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PlanRequest Request(const std::string& optimizer, const std::string& impl) {
  PlanRequest request = SmallRequest(3);
  request.optimizer = optimizer;
  request.optimizer_impl = impl;
  return request;
}

std::vector<std::string> Segments(const pb::Plan& plan) {
  std::vector<std::string> names;
  for (const pb::Segment& segment : plan.segments()) names.push_back(segment.name());
  return names;
}

const pb::Op& Step(const pb::Plan& plan) {
  for (const pb::Op& op : plan.segments(plan.segments_size() - 1).ops()) {
    if (op.has_optimizer_step()) return op;
  }
  ADD_FAILURE() << "no optimizer step";
  return pb::Op::default_instance();
}

// Bytes of rank 0's real rows; three ranks.
int64_t ShardBytes(const pb::Plan& plan) {
  int64_t bytes = 0;
  for (const pb::Parameter& p : plan.parameters()) bytes += 4 * p.padded_shard_numel();
  return bytes;
}

int64_t Bytes(const pb::Plan& plan, const google::protobuf::RepeatedField<int32_t>& buffers) {
  int64_t bytes = 0;
  for (const int b : buffers) bytes += plan.buffers(b).bytes();
  return bytes;
}

TEST(Optimizer, TakesPyTorchsDefaults) {
  const pb::Plan adamw_plan = PlanOf(TreeModel({}), Request("adamw", "fused"));
  const pb::OptimizerStep& adamw = Step(adamw_plan).optimizer_step();
  EXPECT_EQ(adamw.learning_rate(), 1e-3);
  EXPECT_EQ(adamw.weight_decay(), 0.01);
  EXPECT_EQ(adamw.beta1(), 0.9);
  EXPECT_EQ(adamw.beta2(), 0.999);
  EXPECT_EQ(adamw.eps(), 1e-8);
  EXPECT_EQ(adamw.momentum(), 0);
  const pb::Plan sgd_plan = PlanOf(TreeModel({}), Request("sgd", "foreach"));
  const pb::OptimizerStep& sgd = Step(sgd_plan).optimizer_step();
  EXPECT_EQ(sgd.kind(), pb::SGD);
  EXPECT_EQ(sgd.impl(), pb::FOREACH);
  EXPECT_EQ(sgd.learning_rate(), 1e-3);
  EXPECT_EQ(sgd.weight_decay(), 0);
  EXPECT_EQ(sgd.momentum(), 0);
}

TEST(Optimizer, RecordsWhatItIsTold) {
  PlanRequest request = Request("sgd", "fused");
  request.learning_rate = 0.5;
  request.weight_decay = 0.25;
  request.momentum = 0.125;
  const pb::Plan plan = PlanOf(TreeModel({}), request);
  EXPECT_EQ(Step(plan).optimizer_step().learning_rate(), 0.5);
  EXPECT_EQ(Step(plan).optimizer_step().weight_decay(), 0.25);
  EXPECT_EQ(Step(plan).optimizer_step().momentum(), 0.125);
  EXPECT_THAT(plan.decisions().assumptions(2),
              HasSubstr("SGD (fused) with momentum 0.125 in fp32 and weight decay 0.25"));
}

TEST(Optimizer, SgdWithoutMomentumHasNoState) {
  const pb::Plan plan = PlanOf(TreeModel({}), Request("sgd", "foreach"));
  EXPECT_THAT(Segments(plan), ElementsAre("step", "optimizer"));
  EXPECT_EQ(Step(plan).out_size(), plan.parameters_size());
  EXPECT_TRUE(Step(plan).allocs().empty());
}

TEST(Optimizer, SgdWithMomentumKeepsOneBufferOfEachParameter) {
  PlanRequest request = Request("sgd", "fused");
  request.momentum = 0.9;
  const pb::Plan plan = PlanOf(TreeModel({}), request);
  EXPECT_THAT(Segments(plan), ElementsAre("step", "optimizer_init", "optimizer"));
  const pb::Op& init = plan.segments(1).ops(0);
  EXPECT_EQ(init.optimizer_init().kind(), pb::SGD);
  EXPECT_EQ(init.out_size(), plan.parameters_size());
  EXPECT_EQ(Bytes(plan, init.out()), ShardBytes(plan));
  EXPECT_EQ(Step(plan).out_size(), 2 * plan.parameters_size());
}

// As `grad + decay * parameter` of every parameter at once; the fused kernel makes none of them.
TEST(Optimizer, ForeachSgdHoldsAllDecayedGradients) {
  PlanRequest request = Request("sgd", "foreach");
  request.weight_decay = 0.1;
  const pb::Plan plan = PlanOf(TreeModel({}), request);
  EXPECT_EQ(Bytes(plan, Step(plan).allocs()), ShardBytes(plan));
  EXPECT_EQ(Step(plan).allocs_size(), Step(plan).frees_size());
  request.optimizer_impl = "fused";
  const pb::Plan fused = PlanOf(TreeModel({}), request);
  EXPECT_TRUE(Step(fused).allocs().empty());
}

}  // namespace
}  // namespace foreshard
