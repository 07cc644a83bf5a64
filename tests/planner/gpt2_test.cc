#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planner/families/family.h"
#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

constexpr char kTiny[] =
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32,
        "vocab_size": 320, %s})";

StatusOr<pb::Model> Tiny(const std::string& more) {
  std::string text = kTiny;
  text.replace(text.find("%s"), 2, more);
  return ModelFromHfConfig(text, "g.json");
}

int64_t Count(const pb::Module& m) {
  int64_t total = 0;
  for (const pb::ModelParameter& p : m.params()) {
    int64_t n = p.tie().empty() ? 1 : 0;
    for (int64_t d : p.shape()) n *= d;
    total += n;
  }
  for (const pb::Module& child : m.children()) total += Count(child);
  return total;
}

// Published: 124,439,808 (wte 50257 x 768, wpe 1024 x 768, 12 blocks of 7,087,872, ln_f 1536).
TEST(Gpt2, SmallHasThePublishedParameters) {
  auto model = LoadModel("gpt2");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(Count(model->root()), 50257 * 768 + 1024 * 768 + 12 * 7087872 + 1536);
  EXPECT_EQ(Count(model->root()), 124439808);
}

TEST(Gpt2, ShapesAreStoredInputFirstAndTheHeadIsTied) {
  auto model = Tiny(R"("n_inner": null)");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const pb::Module& block = model->root().children(0).children(2).children(0);
  const pb::Module& fused = block.children(1).children(0);
  EXPECT_EQ(fused.class_(), "Conv1D");
  EXPECT_THAT(fused.params(0).shape(), testing::ElementsAre(64, 192));
  EXPECT_THAT(fused.params(1).shape(), testing::ElementsAre(192));
  EXPECT_EQ(model->root().children(1).params(0).tie(), "transformer.wte.weight");
}

std::map<std::string, int> Kernels(const pb::Plan& plan) {
  std::map<std::string, int> count;
  for (const pb::Op& op : plan.segments(0).ops()) {
    if (op.has_compute()) ++count[plan.kernels(op.compute().kernel()).name()];
  }
  return count;
}

PlanRequest TinyRequest() {
  PlanRequest request;
  request.world_size = 2;
  request.seq = 32;
  return request;
}

// After the embeddings, after each block's attention and MLP: 1 + 2 x 2.
TEST(Gpt2, DropoutsRunWhereTheConfigHasThemByDefault) {
  auto with = MakePlan(*Tiny(R"("n_inner": 256)"), TinyRequest());
  ASSERT_TRUE(with.ok()) << with.status().message();
  EXPECT_EQ(Kernels(*with)["dropout"], 5);
  EXPECT_EQ(Kernels(*with)["dropout_backward"], 5);
  auto without =
      MakePlan(*Tiny(R"("resid_pdrop": 0, "embd_pdrop": 0.0, "attn_pdrop": 0)"), TinyRequest());
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_EQ(Kernels(*without).count("dropout"), 0u);
}

TEST(Gpt2, ProbabilitiesOfAttentionReachItsKernel) {
  auto plan = MakePlan(*Tiny(R"("attn_pdrop": 0.25)"), TinyRequest());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  int seen = 0;
  for (const pb::Kernel& kernel : plan->kernels()) {
    if (!kernel.has_attention()) continue;
    ++seen;
    EXPECT_EQ(kernel.attention().dropout(), 0.25);
  }
  EXPECT_EQ(seen, 2);  // forward and backward
}

// The head's part waits until the embedding's has been added in place.
TEST(Gpt2, TiedGradientSettlesAtTheAddition) {
  auto plan = MakePlan(*Tiny(R"("n_inner": 256)"), TinyRequest());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  int settles = 0;
  for (const pb::Op& op : plan->segments(0).ops()) {
    for (const pb::Settle& settle : op.settles()) {
      ++settles;
      EXPECT_EQ(plan->kernels(op.compute().kernel()).name(), "add_");
      EXPECT_EQ(op.out(0), settle.buffer());
      EXPECT_EQ(settle.category(), pb::UNSHARDED_GRAD);
      EXPECT_EQ(plan->buffers(settle.buffer()).category(), pb::TEMP);
    }
  }
  EXPECT_EQ(settles, 1);
}

TEST(Gpt2, MoreTokensThanPositionsAreRefused) {
  PlanRequest request = TinyRequest();
  request.seq = 33;
  auto plan = MakePlan(*Tiny(R"("n_inner": 256)"), request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr("33 tokens, but the model knows 32 positions"));
}

TEST(Gpt2, RefusesWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("activation_function": "relu")", R"(/activation_function: found "relu")"},
      {R"("add_cross_attention": true)", "/add_cross_attention: found true, expected false"},
      {R"("resid_pdrop": 1.5)", "/resid_pdrop: found 1.5, expected a probability"},
      {R"("resid_pdrop": "0.1")", R"(/resid_pdrop: found "0.1", expected a number)"},
      {R"("n_inner": -1)", "/n_inner: found -1"},
      {R"("architectures": ["GPT2Model"])", R"(/architectures: found ["GPT2Model"])"},
  };
  for (const auto& [field, message] : kCases) {
    const auto model = Tiny(field);
    ASSERT_FALSE(model.ok()) << field;
    EXPECT_THAT(model.status().message(), HasSubstr(message));
  }
  const auto odd = ModelFromHfConfig(
      R"({"model_type": "gpt2", "n_embd": 65, "n_layer": 2, "n_head": 4, "n_positions": 32,
          "vocab_size": 320})",
      "g.json");
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.status().message(),
              HasSubstr("/n_embd: found 65, expected a multiple of n_head"));
}

}  // namespace
}  // namespace foreshard
