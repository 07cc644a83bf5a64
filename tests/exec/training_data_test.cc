// The recordings in tests/exec/data fit the plans that are made of their models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "exec/weights.h"
#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/base/safetensors.h"
#include "proto/model.pb.h"

namespace foreshard::exec {
namespace {

class TrainingData : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Path(const std::string& suffix) {
    return std::string(FORESHARD_SOURCE_DIR "/tests/exec/data/") + GetParam() + suffix;
  }
  static pb::Plan Plan() {
    PlanRequest request;
    request.world_size = 2;
    request.micro_batch = 1;
    request.seq = 16;
    request.kernel_profile = "torch-cpu";
    request.param_dtype.reset();
    const auto model = LoadModel(Path("_config.json"));
    CHECK(model.ok()) << model.status().message();
    auto plan = MakePlan(*model, request);
    CHECK(plan.ok()) << plan.status().message();
    return std::move(plan).value();
  }
};

TEST_P(TrainingData, WeightsAreThoseOfThePlan) {
  const auto weights = WeightsFromFile(Plan(), Path("_weights.safetensors"));
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_THAT(weights->unused, ::testing::IsEmpty());
}

TEST_P(TrainingData, EveryParameterHasAGradientAndFinalWeights) {
  const auto training = Safetensors::Open(Path("_training.safetensors"));
  ASSERT_TRUE(training.ok()) << training.status().message();
  const pb::Plan plan = Plan();
  for (const pb::Parameter& parameter : plan.parameters()) {
    for (const char* prefix :
         {"gradient/", "adamw/final/", "sgd/final/", "sgd_momentum/final/", "sgd_clipped/final/"}) {
      SCOPED_TRACE(prefix + parameter.path());
      const StoredTensor* tensor = training->Find(prefix + parameter.path());
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->type, StoredType::kF32);
      EXPECT_EQ(FormatShape(tensor->shape),
                FormatShape({parameter.shape().begin(), parameter.shape().end()}));
    }
  }
  // Tokens, of each optimizer the losses, and of clipping the norms.
  EXPECT_EQ(training->tensors().size(),
            static_cast<size_t>(5 * plan.parameters_size() + 1 + 4 + 1));
}

// A model that knows nothing yet is about as good as a uniform guess: ln 96 = 4.56.
TEST_P(TrainingData, LossesStartNearThoseOfAGuess) {
  const auto training = Safetensors::Open(Path("_training.safetensors"));
  ASSERT_TRUE(training.ok()) << training.status().message();
  for (const char* name :
       {"adamw/losses", "sgd/losses", "sgd_momentum/losses", "sgd_clipped/losses"}) {
    const StoredTensor* tensor = training->Find(name);
    ASSERT_NE(tensor, nullptr);
    std::array<float, 10> losses{};
    ASSERT_TRUE(training->Read(*tensor, 0, std::as_writable_bytes(std::span(losses))).ok());
    EXPECT_NEAR(losses[0], std::log(96), 0.5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingData, ::testing::Values("llama", "llama_tied", "gpt2"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace foreshard::exec
