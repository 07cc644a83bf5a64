// What each kernel profile keeps of a Llama layer between forward and backward, and which attention
// it picks. Letters: T tokens, h hidden, q = heads * head size, kv = the same of keys, f
// intermediate; the compute dtype is bf16. docs/kernel-profiles.md lists the rows.
#include "planner/profiles/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "planner/families/family.h"
#include "tests/planner/plan_helpers.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

struct Sizes {
  int64_t hidden, heads, kv_heads, head_dim, intermediate;
  int64_t batch, seq;
  int64_t tokens() const { return batch * seq; }
  int64_t q() const { return heads * head_dim; }
  int64_t kv() const { return kv_heads * head_dim; }
};

// Equal heads; grouped heads; heads that do not add up to the hidden size, two sequences.
constexpr Sizes kSizes[] = {
    {64, 4, 4, 16, 96, 1, 32}, {64, 8, 2, 8, 160, 1, 48}, {48, 4, 2, 16, 80, 2, 16}};

pb::Model Llama(const Sizes& s, int layers) {
  const nlohmann::json config = {{"model_type", "llama"},
                                 {"vocab_size", 128},
                                 {"hidden_size", s.hidden},
                                 {"intermediate_size", s.intermediate},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", s.heads},
                                 {"num_key_value_heads", s.kv_heads},
                                 {"head_dim", s.head_dim}};
  StatusOr<pb::Model> model = ModelFromHfConfig(config.dump(), "test");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

PlanRequest Request(const Sizes& s, const std::string& profile, const std::string& attention) {
  PlanRequest request = SmallRequest(2);
  request.micro_batch = s.batch;
  request.seq = s.seq;
  request.kernel_profile = profile;
  request.attention = attention;
  request.param_dtype = DType::kBf16;
  return request;
}

// Bytes of what the forward leaves behind.
int64_t KeptBytes(const pb::Plan& plan) {
  int64_t bytes = 0;
  for (int b : AliveAfterForward(plan)) {
    if (plan.buffers(b).category() == pb::ACTIVATION) bytes += plan.buffers(b).bytes();
  }
  return bytes;
}

// What one more layer keeps.
int64_t KeptPerLayer(const Sizes& s, const std::string& profile, const std::string& attention) {
  const PlanRequest request = Request(s, profile, attention);
  return KeptBytes(PlanOf(Llama(s, 3), request)) - KeptBytes(PlanOf(Llama(s, 2), request));
}

// Two norms written in Python, each with its fp32 input (4Th), the reciprocal root (4T), the
// normalized rows in bf16 (2Th) for the weight, and its result (2Th) for the projections; three
// operands of the gated product and the one of the last projection (2Tf each).
int64_t PythonNormsAndMlp(const Sizes& s) {
  const int64_t t = s.tokens();
  return 16 * t * s.hidden + 8 * t + 8 * t * s.intermediate;
}

// Queries, keys, values, the output (also read by the projection behind it) and a fp32 logsumexp.
int64_t FusedAttention(const Sizes& s) {
  const int64_t t = s.tokens();
  return 2 * t * (s.q() + s.kv()) + 2 * t * s.kv() + 2 * t * s.q() + 4 * t * s.heads;
}

TEST(KeptActivations, TorchCudaKeepsFlashsSeedsBesideItsTensors) {
  for (const Sizes& s : kSizes) {
    // Two words of 8 bytes and one more.
    EXPECT_EQ(KeptPerLayer(s, "torch-cuda", "flash"),
              PythonNormsAndMlp(s) + FusedAttention(s) + 24);
  }
}

TEST(KeptActivations, TorchCpuKeepsNoSeeds) {
  for (const Sizes& s : kSizes) {
    EXPECT_EQ(KeptPerLayer(s, "torch-cpu", "flash"), PythonNormsAndMlp(s) + FusedAttention(s));
  }
}

TEST(KeptActivations, ForeshardsNormsKeepTheResidualAndOneFp32PerRow) {
  for (const Sizes& s : kSizes) {
    // Two fused norms, each with its input, which is the residual stream (2Th), rstd (4T) and its
    // result (2Th). Fused rotations keep only the tables of all layers.
    const int64_t norms = 8 * s.tokens() * s.hidden + 8 * s.tokens();
    EXPECT_EQ(KeptPerLayer(s, "foreshard", "flash"),
              norms + FusedAttention(s) + 8 * s.tokens() * s.intermediate);
  }
}

TEST(KeptActivations, EfficientKeepsALogsumexpOfRoundedRowsAndTwoWords) {
  // The rows of the logsumexp are rounded to 32: 16 rows cost what 32 do. Two words of 8 bytes.
  Sizes s = kSizes[0];
  const int64_t full = KeptPerLayer(s, "torch-cuda", "efficient");
  EXPECT_EQ(full, PythonNormsAndMlp(s) + FusedAttention(s) + 16);
  s.seq = 16;
  EXPECT_EQ(KeptPerLayer(s, "torch-cuda", "efficient"),
            PythonNormsAndMlp(s) + FusedAttention(s) + 4 * 16 * s.heads + 16);
}

TEST(KeptActivations, MathKeepsFp32ProbabilitiesOfEveryPair) {
  for (const char* profile : {"torch-cuda", "torch-cpu"}) {
    for (const Sizes& s : kSizes) {
      // In fp32 the scaled queries and, repeated for every query head, the scaled keys and the
      // values (4Tq each) and the probabilities (4 B H S S, S the sequence); in bf16 the output
      // that the next projection reads (2Tq).
      const int64_t probabilities = 4 * s.batch * s.heads * s.seq * s.seq;
      EXPECT_EQ(KeptPerLayer(s, profile, "math"), PythonNormsAndMlp(s) + 12 * s.tokens() * s.q() +
                                                      probabilities + 2 * s.tokens() * s.q());
    }
  }
}

TEST(KeptActivations, MathMaterialisesTheScoresOfEachLayer) {
  Sizes s = kSizes[0];
  s.seq = 40;  // 4 heads of 40 x 40 fp32 scores are like no other tensor's 25600 bytes
  const pb::Plan plan = PlanOf(Llama(s, 2), Request(s, "torch-cuda", "math"));
  int scores = 0;
  for (int b : AliveAfterForward(plan)) {
    if (plan.buffers(b).bytes() == 4 * s.batch * s.heads * s.seq * s.seq) ++scores;
  }
  EXPECT_EQ(scores, 2);
}

TEST(Profiles, KeepTheSameOfEveryLayer) {
  for (const KernelProfile& profile : AllProfiles()) {
    const PlanRequest request = Request(kSizes[1], std::string(profile.name), "auto");
    const int64_t two = KeptBytes(PlanOf(Llama(kSizes[1], 2), request));
    const int64_t three = KeptBytes(PlanOf(Llama(kSizes[1], 3), request));
    const int64_t five = KeptBytes(PlanOf(Llama(kSizes[1], 5), request));
    EXPECT_EQ(five - three, 2 * (three - two)) << profile.name;
  }
}

TEST(Profiles, OnlyCudaTakesLibraryWorkspaces) {
  for (const KernelProfile& profile : AllProfiles()) {
    const pb::Plan plan =
        PlanOf(Llama(kSizes[0], 1), Request(kSizes[0], std::string(profile.name), "auto"));
    bool workspace = false;
    for (const pb::Buffer& b : plan.buffers()) workspace |= b.category() == pb::WORKSPACE;
    EXPECT_EQ(workspace, profile.name == "torch-cuda") << profile.name;
  }
}

TEST(Profiles, UnknownNamesListTheKnown) {
  const StatusOr<const KernelProfile*> profile = FindProfile("cuda");
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(profile.status().message(), HasSubstr("\"cuda\""));
  EXPECT_THAT(profile.status().message(), HasSubstr("torch-cuda, torch-cpu, foreshard"));
}

struct Choice {
  const char* profile;
  DType dtype;
  bool grouped;
  int64_t head_dim;
  bool drops;
  const char* expected;
  const char* reason;
};

TEST(AttentionChoice, AutoFollowsDtypeHeadsHeadSizeAndDropout) {
  constexpr Choice kChoices[] = {
      {"torch-cuda", DType::kBf16, false, 128, false, "flash", "bf16 with heads of 128"},
      {"torch-cuda", DType::kBf16, true, 256, true, "flash", "bf16 with heads of 256"},
      {"torch-cuda", DType::kFp32, false, 128, true, "efficient", "flash takes no fp32"},
      {"torch-cuda", DType::kFp32, true, 128, false, "math", "takes no grouped heads"},
      {"torch-cuda", DType::kBf16, false, 512, false, "efficient",
       "heads of 512 exceed flash's 256"},
      {"torch-cuda", DType::kBf16, true, 512, false, "math", "heads of 512 exceed flash's 256"},
      {"torch-cpu", DType::kFp32, true, 128, false, "flash", "one fused kernel for every dtype"},
      {"torch-cpu", DType::kBf16, false, 64, true, "math", "of torch-cpu takes no dropout"},
      {"foreshard", DType::kFp32, true, 512, true, "flash", "one fused kernel for every dtype"},
  };
  for (const Choice& c : kChoices) {
    const auto choice = ChooseAttention(**FindProfile(c.profile), "auto",
                                        {c.dtype, c.grouped, c.head_dim, c.drops});
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_EQ(choice->name, c.expected) << c.profile << " " << c.reason;
    EXPECT_THAT(choice->reason, HasSubstr(c.reason));
  }
}

TEST(AttentionChoice, AskedForKernelsNeedNoReason) {
  for (const char* name : {"flash", "efficient", "math"}) {
    const auto choice = ChooseAttention(**FindProfile("torch-cuda"), name, {.head_dim = 128});
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->name, name);
    EXPECT_EQ(choice->reason, "");
  }
}

TEST(AttentionChoice, RefusesKernelsThatTheProfileLacks) {
  for (const char* profile : {"torch-cpu", "foreshard"}) {
    const auto choice = ChooseAttention(**FindProfile(profile), "efficient", {.head_dim = 128});
    ASSERT_FALSE(choice.ok());
    EXPECT_THAT(choice.status().message(), HasSubstr("has no efficient attention"));
  }
}

TEST(AttentionChoice, RefusesAKernelThatCannotDrop) {
  const AttentionNeeds drops{.head_dim = 64, .drops = true};
  const auto choice = ChooseAttention(**FindProfile("torch-cpu"), "flash", drops);
  ASSERT_FALSE(choice.ok());
  EXPECT_THAT(choice.status().message(), HasSubstr("flash attention takes no dropout; use math"));
  EXPECT_TRUE(ChooseAttention(**FindProfile("torch-cuda"), "flash", drops).ok());
}

TEST(AttentionChoice, IsRecordedInThePlan) {
  const pb::Plan plan = PlanOf(Llama(kSizes[1], 1), Request(kSizes[1], "torch-cuda", "auto"));
  EXPECT_EQ(plan.decisions().attention(), "flash");
  EXPECT_THAT(plan.decisions().attention_reason(), HasSubstr("bf16 with heads of 8"));
}

}  // namespace
}  // namespace foreshard
