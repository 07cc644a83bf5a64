// What a plan says for whoever runs it: initial values, rotary frequencies, random numbers, the
// workspace and the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "planner/families/family.h"
#include "planner/model_source.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

StatusOr<pb::Model> Llama(const std::string& more) {
  return ModelFromHfConfig(
      R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "vocab_size": 20,
          "num_attention_heads": 2, "num_hidden_layers": 1)" +
          more + "}",
      "l.json");
}

pb::Model Gpt2(const std::string& more) {
  return ModelFromHfConfig(
             R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 8, "n_head": 2, "n_positions": 8,
                 "vocab_size": 20)" +
                 more + "}",
             "g.json")
      .value();
}

const pb::Initial& InitialOf(const pb::Plan& plan, const std::string& path) {
  for (const pb::Parameter& p : plan.parameters()) {
    if (p.path() == path) return p.initial();
  }
  ADD_FAILURE() << "no parameter " << path;
  return pb::Initial::default_instance();
}

TEST(InitialValues, WeightsAreNormalNormsOneAndBiasesZero) {
  const pb::Model model = Llama(R"(, "attention_bias": true, "initializer_range": 0.01)").value();
  const pb::Plan plan = PlanOf(model, SmallRequest(2));
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(InitialOf(plan, "model.embed_tokens.weight").normal(), 0.01);
  EXPECT_EQ(InitialOf(plan, layer + "self_attn.q_proj.weight").normal(), 0.01);
  EXPECT_TRUE(InitialOf(plan, layer + "self_attn.q_proj.bias").has_constant());
  EXPECT_EQ(InitialOf(plan, layer + "self_attn.q_proj.bias").constant(), 0);
  EXPECT_EQ(InitialOf(plan, layer + "input_layernorm.weight").constant(), 1);
  EXPECT_EQ(InitialOf(plan, "lm_head.weight").normal(), 0.01);
}

// Eight layers add to the residual stream twice each: 0.02 / sqrt(16) = 0.005.
TEST(InitialValues, Gpt2ProjectsOntoTheResidualStreamFromSmallerWeights) {
  const pb::Plan plan = PlanOf(Gpt2(""), SmallRequest(2));
  const std::string block = "transformer.h.3.";
  EXPECT_DOUBLE_EQ(InitialOf(plan, block + "attn.c_proj.weight").normal(), 0.005);
  EXPECT_DOUBLE_EQ(InitialOf(plan, block + "mlp.c_proj.weight").normal(), 0.005);
  EXPECT_EQ(InitialOf(plan, block + "attn.c_attn.weight").normal(), 0.02);
  EXPECT_EQ(InitialOf(plan, block + "mlp.c_proj.bias").constant(), 0);
  EXPECT_EQ(InitialOf(plan, block + "ln_1.weight").constant(), 1);
  EXPECT_EQ(InitialOf(plan, block + "ln_1.bias").constant(), 0);
  EXPECT_EQ(InitialOf(plan, "transformer.wpe.weight").normal(), 0.02);
}

TEST(InitialValues, ModelsThatSayNothingTakeTheUsualDeviation) {
  const pb::Plan plan = PlanOf(TreeModel({}), SmallRequest(2));
  EXPECT_EQ(InitialOf(plan, "emb.weight").normal(), 0.02);
  EXPECT_EQ(InitialOf(plan, "layers.0.norm.weight").constant(), 1);
  EXPECT_EQ(InitialOf(plan, "layers.0.norm.bias").constant(), 0);
}

TEST(InitialValues, NumbersThatFillNoTensorAreRefused) {
  const auto message = [](const pb::Model& model) {
    const StatusOr<pb::Plan> plan = MakePlan(model, SmallRequest(2));
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidInput);
    return plan.status().message();
  };
  pb::Model model = TreeModel({});
  model.set_initializer_range(-1);
  EXPECT_THAT(message(model), HasSubstr("initializer_range: found -1"));
  model = TreeModel({});
  FindModule(model, "emb").mutable_params(0)->set_initial_deviation(std::nan(""));
  EXPECT_THAT(message(model), HasSubstr("emb.weight: initial_deviation: found nan"));
  model = TreeModel({});
  model.mutable_rotary()->set_theta(std::numeric_limits<double>::infinity());
  EXPECT_THAT(message(model), HasSubstr("rotary.theta: found inf"));
  model.mutable_rotary()->set_theta(0);
  model.mutable_rotary()->set_factor(2);
  EXPECT_THAT(message(model), HasSubstr("rotary.low_frequency_factor: found 0"));
}

TEST(ModuleBuffers, ShapesThatNoTensorHasAreRefused) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{-1}, {0}, {1, 1, 1, 1, 1, 1, 1}, {int64_t{1} << 62, 4}}) {
    pb::Model model = TreeModel({});
    pb::ModelBuffer& buffer = *FindModule(model, "emb").add_buffers();
    buffer.set_name("table");
    buffer.mutable_shape()->Add(shape.begin(), shape.end());
    const StatusOr<pb::Plan> plan = MakePlan(model, SmallRequest(2));
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(plan.status().message(), HasSubstr("emb.table: found a shape"));
  }
}

// Nothing reads it, so nobody has to know what it holds.
TEST(ModuleBuffers, OthersHaveARowWithoutValues) {
  pb::Model model = TreeModel({});
  pb::ModelBuffer& buffer = *FindModule(model, "emb").add_buffers();
  buffer.set_name("inv_freq");
  for (const int64_t size : {2, 3}) buffer.add_shape(size);
  const pb::Plan plan = PlanOf(model, SmallRequest(2));
  ASSERT_EQ(plan.module_buffers_size(), 1);
  EXPECT_EQ(plan.module_buffers(0).path(), "emb.inv_freq");
  EXPECT_FALSE(plan.module_buffers(0).has_rotary());
}

std::string RopeError(const std::string& fields) {
  const StatusOr<pb::Model> model = Llama(fields);
  EXPECT_FALSE(model.ok()) << fields;
  return model.ok() ? "" : model.status().message();
}

pb::RotaryFrequencies Frequencies(const std::string& fields) {
  const StatusOr<pb::Model> model = Llama(fields);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const pb::Plan plan = PlanOf(*model, SmallRequest(2));
  EXPECT_EQ(plan.module_buffers_size(), 2);
  for (const pb::ModuleBuffer& row : plan.module_buffers()) {
    EXPECT_THAT(row.shape(), testing::ElementsAre(4));  // heads of 8
    EXPECT_EQ(row.rotary().theta(), plan.module_buffers(0).rotary().theta());
  }
  EXPECT_EQ(plan.module_buffers(0).path(), "model.rotary_emb.inv_freq");
  EXPECT_EQ(plan.module_buffers(1).path(), "model.rotary_emb.original_inv_freq");
  return plan.module_buffers(0).rotary();
}

TEST(RotaryFrequencies, FollowTheBaseInBothSpellings) {
  EXPECT_EQ(Frequencies("").theta(), 10000);
  EXPECT_EQ(Frequencies("").factor(), 0);
  EXPECT_EQ(Frequencies(R"(, "rope_theta": 5e5)").theta(), 500000);
  EXPECT_EQ(Frequencies(R"(, "rope_theta": 5e5, "rope_scaling": null)").theta(), 500000);
  EXPECT_EQ(
      Frequencies(R"(, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"})").theta(),
      7);
}

TEST(RotaryFrequencies, ScaleAsLlama3Does) {
  const std::string scaling = R"("factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 8192)";
  for (const std::string& fields :
       {R"(, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", )" + scaling + "}",
        R"(, "rope_theta": 5e5, "rope_scaling": {"type": "llama3", )" + scaling + "}",
        R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", )" + scaling + "}"}) {
    const pb::RotaryFrequencies rotary = Frequencies(fields);
    EXPECT_EQ(rotary.theta(), 500000);
    EXPECT_EQ(rotary.factor(), 32);
    EXPECT_EQ(rotary.low_frequency_factor(), 1);
    EXPECT_EQ(rotary.high_frequency_factor(), 4);
    EXPECT_EQ(rotary.original_positions(), 8192);
  }
}

// The border between slow and fast frequencies lies below every wavelength, which are 2 pi at
// least.
TEST(RotaryFrequencies, LinearScalingDividesAll) {
  const pb::RotaryFrequencies rotary =
      Frequencies(R"(, "rope_scaling": {"type": "linear", "factor": 4.0})");
  EXPECT_EQ(rotary.factor(), 4);
  EXPECT_LT(static_cast<double>(rotary.original_positions()) / rotary.low_frequency_factor(), 6.28);
}

TEST(RotaryFrequencies, OtherScalingsAreRefused) {
  EXPECT_EQ(RopeError(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0})"),
            "l.json: /rope_scaling/rope_type: found \"yarn\", expected \"default\", \"linear\" or "
            "\"llama3\", those that are known");
  EXPECT_THAT(RopeError(R"(, "rope_parameters": {"rope_type": "longrope"})"),
              HasSubstr("/rope_parameters/rope_type: found \"longrope\""));
  EXPECT_THAT(RopeError(R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})"),
              HasSubstr("/rope_scaling/type: found \"dynamic\""));
  EXPECT_THAT(RopeError(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 2.0})"),
              HasSubstr("/rope_scaling/low_freq_factor: found nothing, expected a number above 0"));
  EXPECT_THAT(RopeError(R"(, "rope_scaling": {"rope_type": "linear", "factor": 0})"),
              HasSubstr("/rope_scaling/factor: found 0"));
  EXPECT_THAT(RopeError(R"(, "rope_scaling": "llama3")"), HasSubstr("an object of plain values"));
  EXPECT_THAT(RopeError(R"(, "rope_parameters": {"full_attention": {"rope_theta": 1.0}})"),
              HasSubstr("an object of plain values"));
  EXPECT_THAT(RopeError(R"(, "rope_theta": -1)"), HasSubstr("/rope_theta: found -1"));
  EXPECT_THAT(RopeError(R"(, "partial_rotary_factor": 0.5)"),
              HasSubstr("/partial_rotary_factor: found 0.5, expected 1"));
}

// Per number, the kernels that draw it.
std::map<int, std::vector<std::string>> Draws(const pb::Plan& plan) {
  std::map<int, std::vector<std::string>> draws;
  for (const pb::Op& op : plan.segments(0).ops()) {
    if (op.has_random()) draws[op.random()].push_back(plan.kernels(op.compute().kernel()).name());
  }
  return draws;
}

// One dropout of the embedding, two of each block's outputs, and in attention.
TEST(RandomNumbers, EachCallDrawsItsOwnAndItsBackwardTheSame) {
  PlanRequest request = SmallRequest(2);
  request.param_dtype = DType::kBf16;
  request.kernel_profile = "torch-cuda";
  int masks = 0;
  int attentions = 0;
  for (const auto& [number, kernels] : Draws(PlanOf(Gpt2(""), request))) {
    if (kernels.front() == "dropout") {
      EXPECT_EQ(kernels.size(), 1u);  // backward has the mask
      ++masks;
    } else {
      EXPECT_THAT(kernels, testing::ElementsAre("flash_attention", "flash_attention_backward"));
      ++attentions;
    }
  }
  EXPECT_EQ(masks, 1 + 2 * 8);
  EXPECT_EQ(attentions, 8);
}

// PyTorch's attention on the CPU has no dropout of its own.
TEST(RandomNumbers, TheCpuDropsProbabilitiesThatItMaterialises) {
  const pb::Plan plan = PlanOf(Gpt2(""), SmallRequest(2));
  EXPECT_EQ(plan.decisions().attention(), "math");
  EXPECT_THAT(plan.decisions().attention_reason(), HasSubstr("takes no dropout"));
  const auto draws = Draws(plan);
  EXPECT_EQ(draws.size(), 1u + 3 * 8);
  for (const auto& [number, kernels] : draws) {
    EXPECT_THAT(kernels, testing::ElementsAre("dropout_mask"));
  }
  const pb::Model kept = Gpt2(R"(, "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0)");
  EXPECT_EQ(PlanOf(kept, SmallRequest(2)).decisions().attention(), "flash");
  EXPECT_TRUE(Draws(PlanOf(kept, SmallRequest(2))).empty());
}

TEST(RandomNumbers, AKernelThatCannotDropIsRefused) {
  PlanRequest request = SmallRequest(2);
  request.attention = "flash";
  const StatusOr<pb::Plan> plan = MakePlan(Gpt2(""), request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("flash attention takes no dropout; use math"));
}

TEST(Facts, TheWorkspaceIsALibrarysAndTheLossOneElement) {
  PlanRequest request = SmallRequest(2);
  request.kernel_profile = "torch-cuda";
  request.attention = "math";
  request.arch = "sm90";
  const pb::Plan plan = PlanOf(Llama("").value(), request);
  ASSERT_EQ(plan.workspaces_size(), 1);
  EXPECT_EQ(plan.workspaces(0).library(), "cublas");
  EXPECT_EQ(plan.workspaces(0).arch(), "sm90");
  EXPECT_EQ(plan.buffers(plan.workspaces(0).buffer()).bytes(), 32 << 20);
  ASSERT_TRUE(plan.losses_size() == 1);
  EXPECT_EQ(plan.buffers(plan.losses(0)).bytes(), 4);
  EXPECT_TRUE(plan.buffers(plan.losses(0)).logits());
  EXPECT_EQ(PlanOf(Llama("").value(), SmallRequest(2)).workspaces_size(), 0);
}

}  // namespace
}  // namespace foreshard
