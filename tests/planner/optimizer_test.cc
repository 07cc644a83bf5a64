// What each optimizer is told, keeps and holds while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
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

// The square root and the quotient of one parameter, and the quotient of the one before it. Three
// ranks: rank 2 has less of every parameter (10 rows are 4 + 4 + 2, 8 are 3 + 3 + 2, 32 are 11 + 11
// + 10).
TEST(Optimizer, LoopHoldsWhatTheWorstParameterNeeds) {
  const pb::Plan plan = PlanOf(TreeModel({}), Request("adamw", "loop"));
  ASSERT_EQ(Step(plan).allocs_size(), 1);
  EXPECT_EQ(Step(plan).frees(0), Step(plan).allocs(0));
  const auto worst = [&](auto&& rows) {
    int64_t most = 0;
    int64_t before = 0;
    for (const pb::Parameter& p : plan.parameters()) {
      const int64_t numel = rows(p.shape(0)) * (p.shape_size() > 1 ? p.shape(1) : 1);
      most = std::max(most, 2 * numel + before);
      before = numel;
    }
    return 4 * most;
  };
  const pb::Buffer& held = plan.buffers(Step(plan).allocs(0));
  EXPECT_EQ(held.bytes(), worst([](int64_t d) { return (d + 2) / 3; }));
  ASSERT_EQ(held.others_size(), 1);
  EXPECT_EQ(held.others(0).rank(), 2);
  EXPECT_EQ(held.others(0).bytes(), worst([](int64_t d) { return d - 2 * ((d + 2) / 3); }));
}

// The decayed gradient of one parameter at a time: 11 rows of 8 are most.
TEST(Optimizer, LoopOfSgdHoldsOneDecayedGradient) {
  PlanRequest request = Request("sgd", "loop");
  request.momentum = 0.9;
  EXPECT_TRUE(Step(PlanOf(TreeModel({}), request)).allocs().empty());
  request.weight_decay = 0.1;
  const pb::Plan plan = PlanOf(TreeModel({}), request);
  EXPECT_EQ(Bytes(plan, Step(plan).allocs()), 4 * 96);  // w2: 3 rows of 32
}

int64_t BytesOfCategory(const pb::Plan& plan, pb::Category category) {
  int64_t bytes = 0;
  for (const pb::Buffer& b : plan.buffers()) bytes += b.category() == category ? b.bytes() : 0;
  return bytes;
}

// Parameter, gradient and two moments: 16 bytes in fp32, 8 in bf16, 12 with moments in fp32 beside
// bf16, and a step count for each parameter.
TEST(Optimizer, BytesOfAParameter) {
  struct Case {
    DType original;
    std::optional<DType> state;
    int64_t bytes;
  };
  for (const Case& c :
       {Case{DType::kFp32, {}, 16}, Case{DType::kBf16, {}, 8}, Case{DType::kBf16, DType::kFp32, 12},
        Case{DType::kFp32, DType::kBf16, 12}}) {
    PlanRequest request = SmallRequest(2);
    request.optimizer = "adamw";
    request.original_dtype = c.original;
    request.param_dtype = DType::kBf16;
    request.reduce_dtype = DType::kFp32;
    request.state_dtype = c.state;
    const pb::Plan plan = PlanOf(TreeModel({}), request);
    const int64_t bytes = BytesOfCategory(plan, pb::SHARDED_PARAM) +
                          BytesOfCategory(plan, pb::SHARDED_GRAD) +
                          BytesOfCategory(plan, pb::OPTIMIZER_STATE);
    EXPECT_EQ(bytes,
              c.bytes * Step(plan).optimizer_step().elems() + 4 * int64_t{plan.parameters_size()});
    EXPECT_EQ(plan.decisions().state_dtype(),
              c.state ? static_cast<pb::DType>(*c.state) : pb::DTYPE_UNSPECIFIED);
  }
}

// dim 64 on two ranks: w1 and w2 have 64 x 256 / 2 = 8192 elements, the embedding of 10 rows 320.
TEST(Optimizer, EightBitsKeepAByteAndAScaleOfEach256) {
  PlanRequest request = SmallRequest(2);
  request.optimizer = "adamw8bit";
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 1, .dim = 64}), request);
  const pb::Op& init = plan.segments(1).ops(0);
  EXPECT_EQ(init.optimizer_init().kind(), pb::ADAMW_8BIT);
  for (int i = 0; i < plan.parameters_size(); ++i) {
    const int64_t n = plan.parameters(i).padded_shard_numel();
    const int64_t moment = n == 8192 ? n + n / 256 * 4 + 256 * 4 : 4 * n;
    EXPECT_EQ(plan.buffers(init.out(3 * i)).bytes(), 4);
    EXPECT_EQ(plan.buffers(init.out(3 * i + 1)).bytes(), moment);
    EXPECT_EQ(plan.buffers(init.out(3 * i + 2)).bytes(), moment);
  }
  // Both moments of one parameter as floats, and their new scales.
  EXPECT_EQ(Step(plan).optimizer_step().impl(), pb::LOOP);
  EXPECT_EQ(Bytes(plan, Step(plan).allocs()), 2 * 4 * (8192 + 8192 / 256));
}

// 256 rows of 64 are 86 on three ranks, 84 on the last: 5504 elements and 5376, of which only the
// latter are a multiple of 256.
TEST(Optimizer, EightBitsOnSomeRanksOnlyIsRefused) {
  PlanRequest request = SmallRequest(3);
  request.optimizer = "adamw8bit";
  const auto plan = MakePlan(TreeModel({.blocks = 1, .dim = 64}), request);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(),
              HasSubstr("layers.0.w1.weight in 8 bits on some ranks only (rank 0 has 5504 elements "
                        "of it, rank 2 5376)"));
}

TEST(Optimizer, RefusesWhatNobodyCanDo) {
  PlanRequest request = Request("adafactor", "loop");
  EXPECT_THAT(MakePlan(TreeModel({}), request).status().message(),
              HasSubstr("adafactor does not work with FSDP2"));
  request = Request("adamw8bit", "fused");
  request.state_dtype = DType::kBf16;
  EXPECT_THAT(MakePlan(TreeModel({}), request).status().message(),
              HasSubstr("state-dtype: found bf16, expected none for optimizer adamw8bit"));
  request = Request("adamw", "fused");
  request.state_dtype = DType::kInt64;
  EXPECT_THAT(MakePlan(TreeModel({}), request).status().message(),
              HasSubstr("expected fp32, bf16 or fp16"));
  request = Request("adamw", "fused");
  request.clip = ClipRequest{.max_norm = 0};
  EXPECT_THAT(MakePlan(TreeModel({}), request).status().message(),
              HasSubstr("clip: found norm 0, expected a number above 0"));
}

// With offload everything that clips and updates is the host's, and the next step waits for it.
TEST(Optimizer, OffloadedRunsOnTheHost) {
  PlanRequest request = Request("adamw", "loop");
  request.cpu_offload = true;
  request.clip = ClipRequest{};
  const pb::Plan plan = PlanOf(TreeModel({}), request);
  int ops = 0;
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (op.phase() != pb::CLIP && op.phase() != pb::OPTIMIZER) continue;
      if (!op.has_stream()) continue;
      ++ops;
      EXPECT_EQ(plan.streams(op.stream()).role(), pb::Stream::HOST);
      for (const int b : op.allocs()) EXPECT_TRUE(plan.buffers(b).host());
    }
  }
  EXPECT_EQ(ops, 5);  // norms, all-reduce, scale, state, update
  const pb::Segment& last = plan.segments(plan.segments_size() - 1);
  ASSERT_TRUE(last.ops(1).has_zero_grad());
  EXPECT_THAT(last.ops(1).host_waits(), ElementsAre(0));
}

}  // namespace
}  // namespace foreshard
