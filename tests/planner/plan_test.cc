// Properties of plans over a seeded sample of a small world, and what is refused.
#include "planner/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "planner/families/family.h"
#include "planner/model_source.h"
#include "proto/base/dtype.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

constexpr int kSamples = 1000;

// A Llama with two heads that share their keys.
pb::Model TinyLlama(int layers, bool tie) {
  const nlohmann::json config = {{"model_type", "llama"},
                                 {"vocab_size", 12},
                                 {"hidden_size", 8},
                                 {"intermediate_size", 20},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 1},
                                 {"tie_word_embeddings", tie}};
  return ModelFromHfConfig(config.dump(), "llama").value();
}

struct World {
  pb::Model model;
  PlanRequest request;
};

class Sampler {
 public:
  explicit Sampler(unsigned seed) : random_(seed) {}

  World Next() {
    World w;
    const int blocks = 1 + Below(3);
    const bool tie = Below(2) == 0;
    w.model = Below(2) == 0 ? TinyLlama(blocks, tie) : TreeModel({.blocks = blocks, .tie = tie});
    PlanRequest& r = w.request;
    r.seq = 3;
    r.micro_batch = 1 + Below(2);
    r.world_size = 1 + Below(4);
    r.wrap = Pick<std::string>({"block", "every:2", "whole", "titan"});
    r.torch = Pick<std::string>({"2.14", "2.15"});
    r.attention = Pick<std::string>({"auto", "math"});
    r.kernel_profile = Pick<std::string>({"torch-cuda", "torch-cpu", "foreshard"});
    r.optimizer = Pick<std::string>({"none", "adamw", "adamw", "sgd"});
    if (r.optimizer == "sgd" && Below(2) == 0) r.momentum = 0.9;
    if (r.optimizer == "sgd" && Below(2) == 0) r.weight_decay = 0.1;
    r.optimizer_impl = Pick<std::string>({"fused", "foreach"});
    r.loss = Pick<std::string>({"sum_fp32", "cross_entropy_fp32", "cross_entropy"});
    r.reshard_after_forward = Below(2) == 0;
    const int root = Below(3);
    if (root < 2) r.root_reshard_after_forward = root == 0;
    constexpr DType kTypes[][3] = {{DType::kFp32, DType::kFp32, DType::kFp32},
                                   {DType::kFp32, DType::kBf16, DType::kFp32},
                                   {DType::kFp32, DType::kBf16, DType::kBf16},
                                   {DType::kBf16, DType::kBf16, DType::kBf16}};
    const auto& types = kTypes[Below(4)];
    r.original_dtype = types[0];
    r.param_dtype = types[1];
    r.reduce_dtype = types[2];
    if (Below(5) == 0) r.reduce_dtype.reset();
    return w;
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  template <typename T>
  T Pick(std::vector<T> choices) {
    return choices[Below(static_cast<int>(choices.size()))];
  }

  std::mt19937 random_;
};

std::string Text(const World& w) {
  const PlanRequest& r = w.request;
  return w.model.name() + " world " + std::to_string(r.world_size) + " wrap " + r.wrap + " torch " +
         r.torch + " " + r.kernel_profile + " " + r.attention + " " + r.optimizer + " " +
         r.optimizer_impl + " " + r.loss + " reshard " + Describe(r.reshard_after_forward) +
         " root " + Describe(r.root_reshard_after_forward) + " dtypes " +
         std::string(Name(r.original_dtype)) + "/" + std::string(Name(*r.param_dtype)) + "/" +
         (r.reduce_dtype ? std::string(Name(*r.reduce_dtype)) : "none");
}

int64_t RowsTimes(const pb::Parameter& p, int64_t rows) {
  int64_t numel = rows;
  for (int i = 1; i < p.shape_size(); ++i) numel *= p.shape(i);
  return numel;
}

// What lives between steps on rank 0: padded shards, and of AdamW a step count and two moments of
// the real rows, of SGD one if it has momentum.
int64_t ShardBytes(const pb::Plan& plan, const PlanRequest& request) {
  int64_t bytes = 0;
  for (const pb::Parameter& p : plan.parameters()) {
    const int64_t rows = (p.shape(0) + request.world_size - 1) / request.world_size;
    bytes += RowsTimes(p, rows) * SizeOf(request.original_dtype);
  }
  return bytes;
}
int64_t StateBytes(const pb::Plan& plan, const PlanRequest& request) {
  const bool adamw = request.optimizer == "adamw";
  if (!adamw && request.momentum.value_or(0) == 0) return 0;
  int64_t bytes = 0;
  for (const pb::Parameter& p : plan.parameters()) {
    const int64_t rows = (p.shape(0) + request.world_size - 1) / request.world_size;
    const int64_t moment =
        RowsTimes(p, std::min(rows, p.shape(0))) * SizeOf(request.original_dtype);
    bytes += adamw ? 4 + 2 * moment : moment;
  }
  return bytes;
}

void ExpectStepsEndWithShardsAndState(const pb::Plan& plan, const PlanRequest& request) {
  const pb::Report report = ReportOf(plan);
  for (const char* program : {"first", "steady"}) {
    EXPECT_EQ(CountedTotal(PhaseOf(report, program, pb::ZERO_GRAD).end_by_category()),
              ShardBytes(plan, request) + StateBytes(plan, request))
        << program;
  }
}

// Everything that a program allocates it frees, but for the optimizer's state.
void ExpectFreesBalance(const pb::Plan& plan, const PlanRequest& request) {
  std::map<std::string, int64_t> left;
  WalkPlan(plan, [&](const Moment& m) {
    int64_t& bytes = left[*m.program];
    for (int b : m.op->allocs()) bytes += plan.buffers(b).bytes();
    for (int b : m.op->frees()) bytes -= plan.buffers(b).bytes();
  });
  EXPECT_EQ(left["first"], StateBytes(plan, request));
  EXPECT_EQ(left["steady"], 0);
}

// The gathered memory of docs/fsdp2.md: units that are kept, or whose forward surrounds the others,
// and of the rest
//   gather:   AGo(previous) + Cast(i) + AGo(i), and in backward the parameters of one unit;
//   copy-out: U(i) + AGo(i), with AGo(previous) in forward before 2.15.
// One rank gathers nothing and casts one parameter after the other, the one before still there.
void ExpectGatheredMemoryIsBounded(const pb::Plan& plan) {
  const bool before_215 = plan.decisions().torch() == "2.14";
  WalkPlan(plan, [&](const Moment& m) {
    std::set<int> passing;
    int outputs = 0;
    int casts = 0;
    for (int b = 0; b < plan.buffers_size(); ++b) {
      if (!(*m.alive)[b]) continue;
      const pb::Buffer& buffer = plan.buffers(b);
      outputs += buffer.category() == pb::AG_OUTPUT ? 1 : 0;
      casts += buffer.category() == pb::CAST ? 1 : 0;
      if (buffer.category() != pb::UNSHARDED_PARAM) continue;
      const pb::Unit& unit = plan.units(buffer.unit());
      const bool surrounds = unit.name() == "<root>";
      if (unit.reshard_after_forward() && !surrounds) passing.insert(buffer.unit());
    }
    const bool copies_out = m.op->has_copy_out();
    const bool held = !copies_out || (before_215 && m.op->phase() == pb::FORWARD);
    EXPECT_LE(passing.size(), 1u);
    EXPECT_LE(outputs, held ? 2 : 1);
    const bool alone = plan.mesh().shard_size() == 1;
    if (alone) {
      EXPECT_EQ(outputs, 0);
    }
    const int held_casts = alone && m.op->has_cast_shard() ? 2 : 1;
    EXPECT_LE(casts, m.op->has_copy_out() || m.op->has_compute() ? 0 : held_casts);
  });
}

TEST(Plans, HoldTheirPropertiesOverASampleOfTheSmallWorld) {
  Sampler sampler(20);
  for (int i = 0; i < kSamples && !testing::Test::HasFailure(); ++i) {
    const World w = sampler.Next();
    SCOPED_TRACE(Text(w));
    const pb::Plan plan = PlanOf(w.model, w.request);
    if (plan.units().empty()) continue;
    ExpectStepsEndWithShardsAndState(plan, w.request);
    ExpectFreesBalance(plan, w.request);
    ExpectGatheredMemoryIsBounded(plan);
  }
}

TEST(Plans, SameRequestGivesTheSameBytes) {
  Sampler sampler(21);
  for (int i = 0; i < 30; ++i) {
    const World w = sampler.Next();
    EXPECT_EQ(PlanOf(w.model, w.request).SerializeAsString(),
              PlanOf(w.model, w.request).SerializeAsString())
        << Text(w);
  }
}

TEST(Plans, WorldBeyondEveryParametersRowsStillShards) {
  PlanRequest request = SmallRequest(64);
  request.optimizer = "adamw";
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 1}), request);
  // One row of each parameter on each rank: emb 8; norm 1, 1; w1 8; w2 32; norm 1, 1; head 8.
  EXPECT_EQ(ShardBytes(plan, request), (8 + 1 + 1 + 8 + 32 + 1 + 1 + 8) * 4);
}

TEST(Plans, ReduceDtypeDefaultsToTheComputeDtypeBefore215) {
  PlanRequest request = SmallRequest(2);
  request.param_dtype = DType::kBf16;
  request.reduce_dtype.reset();
  request.torch = "2.14";
  EXPECT_EQ(PlanOf(TreeModel({}), request).decisions().reduce_dtype(), pb::BF16);
  request.torch = "2.15";
  EXPECT_EQ(PlanOf(TreeModel({}), request).decisions().reduce_dtype(), pb::FP32);
}

TEST(Plans, VersionsFallBackToTheNewestProfileNotAbove) {
  PlanRequest request = SmallRequest(2);
  for (const auto& [asked, used] :
       {std::pair{"2.14.1", "2.14"}, std::pair{"2.15.0", "2.15"}, std::pair{"2.16", "2.15"},
        std::pair{"3.0", "2.15"}, std::pair{"2.15.0+cu128", "2.15"}}) {
    request.torch = asked;
    const pb::Decisions decisions = PlanOf(TreeModel({}), request).decisions();
    EXPECT_EQ(decisions.torch(), asked);
    EXPECT_THAT(decisions.assumptions(0), HasSubstr(std::string("FSDP2 of torch ") + used));
  }
}

// What a step of one rank does with a unit of parameters a and b: cast a, copy a, cast b (a's cast
// goes only then), copy b.
TEST(Plans, OneRankCopiesItsParametersOneByOne) {
  PlanRequest request = SmallRequest(1);
  request.wrap = "whole";
  request.param_dtype = DType::kBf16;
  const pb::Plan plan = PlanOf(TwoParameterModel(), request);
  std::vector<std::string> ops;
  for (const pb::Op& op : plan.segments(0).ops()) {
    if (op.has_cast_shard()) ops.push_back("cast");
    if (op.has_local_gather()) ops.push_back("copy");
    if (op.has_reduce_copy_in()) ops.push_back("copy in");
    if (op.has_local_reduce()) ops.push_back("reduce");
    if (op.has_grad_finalize()) ops.push_back("finalize");
    if (op.has_cast_shard() || op.has_local_gather())
      ops.back() += " " + std::to_string(op.frees_size());
  }
  EXPECT_THAT(ops, testing::ElementsAre("cast 0", "copy 0", "cast 1", "copy 1", "copy in", "reduce",
                                        "finalize"));
  EXPECT_TRUE(Collectives(plan, pb::FORWARD).empty());
  EXPECT_TRUE(Collectives(plan, pb::BACKWARD).empty());
  request.param_dtype = DType::kFp32;
  const pb::Plan wide = PlanOf(TwoParameterModel(), request);
  for (const pb::Op& op : wide.segments(0).ops()) EXPECT_FALSE(op.has_cast_shard());
}

// Nothing runs on the streams of gathers, so nothing waits there.
TEST(Plans, OneRankLeavesTheGatherStreamsEmpty) {
  const pb::Plan plan = PlanOf(TreeModel({}), SmallRequest(1));
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (!op.has_stream()) continue;
      const pb::Stream::Role role = plan.streams(op.stream()).role();
      EXPECT_TRUE(role == pb::Stream::COMPUTE || role == pb::Stream::REDUCE);
    }
  }
}

struct BadRequest {
  const char* flag;  // that the message names
  void (*spoil)(PlanRequest&);
};

constexpr BadRequest kBad[] = {
    {"world", [](PlanRequest& r) { r.world_size = 0; }},
    {"world", [](PlanRequest& r) { r.world_size = -3; }},
    {"world", [](PlanRequest& r) { r.world_size = 2000000000; }},
    {"seq", [](PlanRequest& r) { r.seq = 0; }},
    {"seq", [](PlanRequest& r) { r.seq = -1; }},
    {"micro-batch", [](PlanRequest& r) { r.micro_batch = 0; }},
    {"micro-batch", [](PlanRequest& r) { r.micro_batch = INT64_MAX; }},
    {"seq", [](PlanRequest& r) { r.seq = INT64_MAX; }},
    {"torch", [](PlanRequest& r) { r.torch = "2.5"; }},
    {"torch", [](PlanRequest& r) { r.torch = "1.13"; }},
    {"torch", [](PlanRequest& r) { r.torch = "abc"; }},
    {"torch", [](PlanRequest& r) { r.torch = ""; }},
    {"torch", [](PlanRequest& r) { r.torch = "2"; }},
    {"torch", [](PlanRequest& r) { r.torch = "2.15x"; }},
    {"torch", [](PlanRequest& r) { r.torch = "2.99999999999999999999"; }},
    {"torch", [](PlanRequest& r) { r.torch = std::string(100000, '9'); }},
    {"kernel profile", [](PlanRequest& r) { r.kernel_profile = "torch-tpu"; }},
    {"attention", [](PlanRequest& r) { r.attention = "flush"; }},
    {"wrap", [](PlanRequest& r) { r.wrap = "blocks"; }},
    {"wrap", [](PlanRequest& r) { r.wrap = ""; }},
    {"wrap", [](PlanRequest& r) { r.wrap = "every:0"; }},
    {"wrap", [](PlanRequest& r) { r.wrap = "class:"; }},
    {"optimizer", [](PlanRequest& r) { r.optimizer = "adam"; }},
    {"optimizer-impl", [](PlanRequest& r) { r.optimizer_impl = "fast"; }},
    {"learning-rate", [](PlanRequest& r) { r.optimizer = "adamw", r.learning_rate = -1e-3; }},
    {"learning-rate", [](PlanRequest& r) { r.optimizer = "sgd", r.learning_rate = NAN; }},
    {"learning-rate: found 0.1, expected none for optimizer none",
     [](PlanRequest& r) { r.learning_rate = 0.1; }},
    {"weight-decay", [](PlanRequest& r) { r.optimizer = "adamw", r.weight_decay = INFINITY; }},
    {"weight-decay: found 0, expected none", [](PlanRequest& r) { r.weight_decay = 0; }},
    {"momentum", [](PlanRequest& r) { r.optimizer = "sgd", r.momentum = -0.5; }},
    {"momentum: found 0.9, expected none for optimizer adamw",
     [](PlanRequest& r) { r.optimizer = "adamw", r.momentum = 0.9; }},
    {"loss", [](PlanRequest& r) { r.loss = "mse"; }},
    {"dtype", [](PlanRequest& r) { r.original_dtype = DType::kInt64; }},
    {"dtype", [](PlanRequest& r) { r.param_dtype = DType::kInt64; }},
    {"dtype", [](PlanRequest& r) { r.reduce_dtype = DType::kBool; }},
};

TEST(Plans, RefuseBadRequestsByTheNameOfTheFlag) {
  const pb::Model model = TreeModel({});
  for (size_t i = 0; i < std::size(kBad); ++i) {
    PlanRequest request = SmallRequest(4);
    kBad[i].spoil(request);
    const StatusOr<pb::Plan> plan = MakePlan(model, request);
    ASSERT_FALSE(plan.ok()) << "row " << i;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << plan.status().message();
    EXPECT_THAT(plan.status().message(), HasSubstr(kBad[i].flag));
  }
}

TEST(Plans, RefuseMathAttentionWhoseScoresLeave64Bits) {
  const StatusOr<pb::Model> model = LoadModel("llama-3.1-405b");
  ASSERT_TRUE(model.ok()) << model.status().message();
  PlanRequest request;
  request.world_size = 1024;
  request.attention = "math";
  // 128 heads x 2^22 x 2^22 scores are 2.3e15.
  request.seq = int64_t{1} << 22;
  const StatusOr<pb::Plan> plan = MakePlan(*model, request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("seq: attention scores of "));
}

TEST(Plans, RefuseModelsWithoutATrainableParameter) {
  pb::Model model = TreeModel({});
  Freeze(*model.mutable_root());
  const StatusOr<pb::Plan> plan = MakePlan(model, SmallRequest(2));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(plan.status().message(), HasSubstr("does not depend on a trainable parameter"));
}

}  // namespace
}  // namespace foreshard
