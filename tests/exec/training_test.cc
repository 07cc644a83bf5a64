// Training against PyTorch: 10 steps of tiny models in fp32, on one and two ranks, with every
// optimizer that was recorded (tests/exec/data/README.md says how, and what two runs of PyTorch
// differ by).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "exec/cpu/sanitizers.h"
#include "exec/run.h"
#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/base/safetensors.h"
#include "proto/model.pb.h"

namespace foreshard::exec {
namespace {

constexpr int kSteps = 10;
constexpr int kSequences = 2;
constexpr int kTokens = 16;

std::string Path(const std::string& name) {
  return std::string(FORESHARD_SOURCE_DIR "/tests/exec/data/") + name;
}

template <typename T>
std::vector<T> ReadAll(const Safetensors& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr) << name;
  std::vector<T> values(tensor->numel);
  CHECK(file.Read(*tensor, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

// The recorded sequences, those of a step dealt to the ranks in order.
class RecordedTokens final : public DataSource {
 public:
  RecordedTokens(const pb::Plan& plan, std::vector<int64_t> tokens)
      : plan_(plan), tokens_(std::move(tokens)) {}
  Status Fill(int input, const DataPlace& place, std::span<int64_t> out) const override {
    const int shift = plan_.inputs(input).rule() == pb::Input::LABELS ? 1 : 0;
    const auto rows = static_cast<int64_t>(out.size()) / kTokens;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t sequence = place.step * kSequences + place.rank * rows + row;
      std::copy_n(tokens_.begin() + sequence * (kTokens + 1) + shift, kTokens,
                  out.begin() + row * kTokens);
    }
    return OkStatus();
  }
  Status Fill(int, const DataPlace&, std::span<float>) const override {
    return Internal("no input of these models is a float");
  }

 private:
  const pb::Plan& plan_;
  const std::vector<int64_t> tokens_;
};

struct Optimizer {
  const char* recorded;  // as the recordings name it
  const char* name;
  const char* impl;
  double learning_rate, momentum, weight_decay;
  double weights;       // most that a tensor may differ, of its norm
  double max_norm = 0;  // 0 = gradients are not clipped
};
constexpr Optimizer kOptimizers[] = {
    {"adamw", "adamw", "fused", 1e-3, 0, 0.01, 1e-4},
    {"adamw", "adamw", "foreach", 1e-3, 0, 0.01, 1e-4},
    {"adamw", "adamw", "loop", 1e-3, 0, 0.01, 1e-4},
    // Tensors of so few elements keep their moments as they are.
    {"adamw", "adamw8bit", "loop", 1e-3, 0, 0.01, 1e-4},
    {"sgd", "sgd", "fused", 0.1, 0, 0, 1e-5},
    {"sgd_momentum", "sgd", "fused", 0.1, 0.9, 0.01, 1e-5},
    {"sgd_momentum", "sgd", "loop", 0.1, 0.9, 0.01, 1e-5},
    {"sgd_clipped", "sgd", "foreach", 0.1, 0, 0, 1e-5, 0.5},
};

struct Case {
  std::string model;
  std::string profile;
  int ranks = 1;
  Optimizer optimizer;
};

pb::Plan PlanOf(const Case& c) {
  PlanRequest request;
  request.world_size = c.ranks;
  request.micro_batch = kSequences / c.ranks;
  request.seq = kTokens;
  request.kernel_profile = c.profile;
  request.param_dtype = DType::kFp32;
  request.optimizer = c.optimizer.name;
  request.optimizer_impl = c.optimizer.impl;
  request.learning_rate = c.optimizer.learning_rate;
  if (c.optimizer.momentum > 0) request.momentum = c.optimizer.momentum;
  request.weight_decay = c.optimizer.weight_decay;
  if (c.optimizer.max_norm > 0) request.clip = ClipRequest{c.optimizer.max_norm};
  auto plan = MakePlan(LoadModel(Path(c.model + "_config.json")).value(), request);
  CHECK(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

std::vector<float> Floats(const NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The difference of two tensors over the norm of the second, over elements [begin, end).
double Distance(const std::vector<float>& a, const std::vector<float>& b, size_t begin,
                size_t end) {
  double difference = 0;
  double norm = 0;
  for (size_t i = begin; i < end; ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK_EQ(a.size(), b.size());
  return Distance(a, b, 0, b.size());
}

// A key bias adds the same to all scores of a query, which softmax ignores: its true gradient is
// zero, and AdamW makes full steps of what is rounding. GPT-2 keeps it as the middle third.
double DistanceWithoutKeyBias(const std::vector<float>& a, const std::vector<float>& b) {
  const size_t third = b.size() / 3;
  return std::max(Distance(a, b, 0, third), Distance(a, b, 2 * third, b.size()));
}

class Training : public testing::TestWithParam<Case> {};

TEST_P(Training, FollowsPyTorch) {
  const Case& c = GetParam();
  const pb::Plan plan = PlanOf(c);
  const auto recorded = Safetensors::Open(Path(c.model + "_training.safetensors"));
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  const RecordedTokens data(plan, ReadAll<int64_t>(*recorded, "tokens"));
  const auto weights = WeightsFromFile(plan, Path(c.model + "_weights.safetensors"));
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  RunOptions options;
  options.steps = kSteps;
  options.keeps_weights = true;
  const auto run = RunOnCpu(plan, *weights->source, data, true, options);
  ASSERT_TRUE(run.ok()) << run.status().message();

  const std::string prefix = c.optimizer.recorded;
  const std::vector<float> losses = ReadAll<float>(*recorded, prefix + "/losses");
  double worst_loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    const double difference = std::abs(run->steps[step].losses[0] - losses[step]) / losses[step];
    worst_loss = std::max(worst_loss, difference);
  }
  EXPECT_LT(worst_loss, 1e-5);
  if (c.optimizer.max_norm > 0) {
    const std::vector<float> norms = ReadAll<float>(*recorded, prefix + "/norms");
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(run->steps[step].gradient_norm, norms[step], 1e-5 * norms[step]) << step;
    }
  }

  double worst = 0;
  for (const NamedTensor& tensor : run->weights) {
    const auto expected = ReadAll<float>(*recorded, prefix + "/final/" + tensor.path);
    const bool key_bias = prefix == "adamw" && tensor.path.ends_with("attn.c_attn.bias");
    const double distance = key_bias ? DistanceWithoutKeyBias(Floats(tensor), expected)
                                     : Distance(Floats(tensor), expected);
    EXPECT_LT(distance, c.optimizer.weights) << tensor.path;
    worst = std::max(worst, distance);
  }
  fmt::print("losses within {:.1e}, weights within {:.1e} of their norm\n", worst_loss, worst);
}

TEST_P(Training, GradientsOfTheFirstStepArePyTorchs) {
  const Case& c = GetParam();
  const pb::Plan plan = PlanOf(c);
  const auto recorded = Safetensors::Open(Path(c.model + "_training.safetensors")).value();
  const RecordedTokens data(plan, ReadAll<int64_t>(recorded, "tokens"));
  const auto weights = WeightsFromFile(plan, Path(c.model + "_weights.safetensors"));
  RunOptions options;
  options.steps = 1;
  options.keeps_gradients = true;
  const auto run = RunOnCpu(plan, *weights->source, data, true, options);
  ASSERT_TRUE(run.ok()) << run.status().message();
  double worst = 0;
  double squares = 0;
  for (const NamedTensor& tensor : run->gradients) {
    for (const float x : ReadAll<float>(recorded, "gradient/" + tensor.path)) {
      squares += double{x} * x;
    }
  }
  // What the optimizer reads has been clipped; the norm is the one before.
  const double max_norm = c.optimizer.max_norm;
  const double scale = max_norm > 0 ? max_norm / (std::sqrt(squares) + 1e-6) : 1;
  for (const NamedTensor& tensor : run->gradients) {
    auto expected = ReadAll<float>(recorded, "gradient/" + tensor.path);
    for (float& x : expected) x = static_cast<float>(x * scale);
    const double distance = Distance(Floats(tensor), expected);
    EXPECT_LT(distance, 1e-5) << tensor.path;
    worst = std::max(worst, distance);
  }
  EXPECT_NEAR(run->steps[0].gradient_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
  fmt::print("gradients within {:.1e} of their norm\n", worst);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::vector<const char*> profiles = {"torch-cpu", "torch-cuda", "foreshard"};
  if (sanitizers::kIsSanitized) profiles = {"foreshard"};  // everything is slow then
  for (const char* model : {"llama", "llama_tied", "gpt2"}) {
    for (const char* profile : profiles) {
      for (const int ranks : {1, 2}) {
        for (const Optimizer& optimizer : kOptimizers) {
          cases.push_back({model, profile, ranks, optimizer});
        }
      }
    }
  }
  return cases;
}

std::string NameOf(const Case& c) {
  std::string name = fmt::format("{}_{}_{}_{}_{}_on_{}", c.model, c.profile, c.optimizer.recorded,
                                 c.optimizer.name, c.optimizer.impl, c.ranks);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Recorded, Training, testing::ValuesIn(Cases()),
                         [](const auto& each) { return NameOf(each.param); });

}  // namespace
}  // namespace foreshard::exec
