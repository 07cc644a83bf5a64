// Sharded training is the same as training without shards, bit by bit: losses and weights of every
// way to cut a tiny Llama and a tiny GPT-2 equal those of the one-rank reference.
#include "tests/testing/one_rank.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "exec/convert.h"
#include "exec/cpu/sanitizers.h"
#include "exec/run.h"
#include "tests/small_world/world.h"

namespace foreshard {
namespace {

constexpr int kSteps = 4;
constexpr uint64_t kSeed = 3;

struct Types {
  const char* name;
  DType original;
  DType param;
  DType reduce;
};
constexpr Types kTypes[] = {
    {"fp32", DType::kFp32, DType::kFp32, DType::kFp32},
    {"bf16 compute", DType::kFp32, DType::kBf16, DType::kFp32},
    {"bf16 compute and reduction", DType::kFp32, DType::kBf16, DType::kBf16},
    {"bf16 parameters", DType::kBf16, DType::kBf16, DType::kFp32},
};

void ExpectSameBits(const std::vector<exec::NamedTensor>& tensors,
                    const std::vector<std::vector<std::byte>>& expected) {
  ASSERT_EQ(tensors.size(), expected.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(tensors[i].bytes == expected[i]) << tensors[i].path;
  }
}

bool IsReplicated(const SmallCase& c) {
  return c.request.strategy == "ddp" || c.request.strategy == "zero1";
}

// A tensor that is used twice has two parts of its gradient. Where micro-batches are added up in a
// larger dtype than that of compute, autograd adds the parts in that one, and in a micro-batch
// alone in the smaller one: the reference rounds where the run does not.
bool IsExact(const SmallCase& c) {
  const PlanRequest& r = c.request;
  if (IsReplicated(c)) return true;  // one dtype
  const DType compute = r.param_dtype.value_or(r.original_dtype);
  const DType reduce = r.reduce_dtype.value_or(r.original_dtype);
  const bool adds_up = r.micro_batches.count > 1 && !r.micro_batches.reduce;
  return !c.tied || !adds_up || SizeOf(reduce) <= SizeOf(compute);
}

// What depends on how parameters are cut: a norm is the sum of those of shards, blocks of moments
// in 8 bits are those of a shard.
bool DependsOnShards(const SmallCase& c) {
  return c.request.clip.has_value() || c.request.optimizer == "adamw8bit";
}

// The rounding of one gradient in bf16, and what Adam makes of it in some steps. Of the bias that
// holds GPT-2's key bias it makes anything: that one's true gradient is 0.
constexpr double kLossTolerance = 5e-4;    // of the loss
constexpr double kWeightTolerance = 5e-3;  // of a tensor's norm

std::vector<float> Floats(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / SizeOf(dtype));
  exec::ConvertElements(bytes.data(), dtype, values.data(), DType::kFp32,
                        static_cast<int64_t>(values.size()));
  return values;
}

void ExpectNear(const std::vector<exec::NamedTensor>& tensors,
                const std::vector<std::vector<std::byte>>& expected) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].path.ends_with("c_attn.bias")) continue;
    const std::vector<float> a = Floats(tensors[i].bytes, tensors[i].dtype);
    const std::vector<float> b = Floats(expected[i], tensors[i].dtype);
    double difference = 0, norm = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      difference += double{a[j] - b[j]} * double{a[j] - b[j]};
      norm += double{b[j]} * double{b[j]};
    }
    EXPECT_LE(std::sqrt(difference), kWeightTolerance * std::sqrt(norm)) << tensors[i].path;
  }
}

// The same training of one rank and micro-batch at a time that keeps all it has made: nothing is
// left of what was asked for but what decides the numbers.
SmallCase Alone(const SmallCase& sharded) {
  SmallCase alone;
  alone.blocks = sharded.blocks;
  alone.tied = sharded.tied;
  alone.gpt2 = sharded.gpt2;
  alone.frozen = sharded.frozen;
  const PlanRequest& from = sharded.request;
  PlanRequest& r = alone.request;
  r.world_size = 1;
  r.wrap = from.wrap;
  r.micro_batch = from.micro_batch;
  r.seq = from.seq;
  // Older ones have other gradients; those before 2.14 have the same, in collectives of one rank.
  r.torch = from.torch == "2.15" ? "2.15" : "2.14";
  r.kernel_profile = from.kernel_profile;
  r.attention = from.attention;
  r.original_dtype = from.original_dtype;
  r.param_dtype = from.param_dtype;
  r.reduce_dtype = from.reduce_dtype;
  // Flat gradients are reduced as they are computed, where nothing else was asked for.
  if (from.strategy != "fsdp2" && !from.reduce_dtype) {
    r.reduce_dtype = from.param_dtype.value_or(from.original_dtype);
  }
  r.output_dtype = from.output_dtype;
  r.cast_forward_inputs = from.cast_forward_inputs;
  if (IsReplicated(sharded)) {
    r.param_dtype = r.reduce_dtype = r.output_dtype = std::nullopt;
  }
  r.optimizer = from.optimizer;
  r.optimizer_impl = from.optimizer_impl;
  r.learning_rate = from.learning_rate;
  r.weight_decay = from.weight_decay;
  r.momentum = from.momentum;
  r.state_dtype = from.state_dtype;
  r.loss = from.loss;
  return alone;
}

void Check(const SmallCase& sharded) {
  const SmallCase alone = Alone(sharded);
  const StatusOr<pb::Plan> plan = PlanOfCase(sharded);
  const StatusOr<pb::Plan> one = PlanOfCase(alone);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(one.ok()) << one.status().message();
  const auto weights = exec::WeightsFromSeed(*plan, kSeed).value();
  const auto data = exec::SyntheticData(*plan, kSeed).value();
  exec::RunOptions options;
  options.steps = kSteps;
  options.seed = kSeed;
  options.keeps_weights = true;
  const auto outcome = exec::RunOnCpu(*plan, *weights, *data, true, options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  OneRankReference reference(*one, sharded.request, kSeed, *weights, *data);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<double> expected = reference.Step();
    const std::vector<double>& losses = outcome->steps[step].losses;
    if (IsExact(sharded)) {
      EXPECT_EQ(losses, expected) << "step " << step;
      continue;
    }
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], kLossTolerance * std::abs(expected[i]));
    }
  }
  if (IsExact(sharded)) return ExpectSameBits(outcome->weights, reference.weights());
  ExpectNear(outcome->weights, reference.weights());
}

// Calls `visit` for each profile, wrapping, number of ranks and resharding; for some of them where
// sanitizers slow everything down.
template <typename Visit>
void ForEachLayout(Visit visit) {
  std::vector<const char*> profiles = {"foreshard", "torch-cpu", "torch-cuda"};
  if (exec::sanitizers::kIsSanitized) profiles = {"foreshard"};
  for (const char* profile : profiles) {
    for (const char* wrap : {"block", "titan"}) {
      for (int ranks = 1; ranks <= (exec::sanitizers::kIsSanitized ? 3 : 4); ++ranks) {
        for (const bool reshard : {true, false}) {
          SmallCase c;
          c.blocks = 2;
          c.request.wrap = wrap;
          c.request.kernel_profile = profile;
          c.request.world_size = ranks;
          c.request.reshard_after_forward = reshard;
          c.request.seq = 4;
          c.request.micro_batch = 2;
          c.name = fmt::format("{} {} {} ranks, reshard {}", profile, wrap, ranks, reshard);
          visit(c);
        }
      }
    }
  }
}

class OneRank : public testing::TestWithParam<bool> {};

TEST_P(OneRank, LossesAndWeightsAreBitIdentical) {
  ForEachLayout([](SmallCase c) {
    c.gpt2 = GetParam();
    for (const Types& types : kTypes) {
      c.request.original_dtype = types.original;
      c.request.param_dtype = types.param;
      c.request.reduce_dtype = types.reduce;
      SCOPED_TRACE(c.name + ", " + types.name);
      ASSERT_NO_FATAL_FAILURE(Check(c));
      if (HasFailure()) return;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, OneRank, testing::Bool(), [](const auto& model) {
  return std::string(model.param ? "Gpt2" : "Llama");
});

class OneRankSmallWorld : public testing::TestWithParam<Library> {};

// A seeded sample of everything that can be asked for, or what FORESHARD_SMALL_RUNS asks for ("all"
// is for the sweep).
TEST_P(OneRankSmallWorld, LossesAndWeightsAreBitIdentical) {
  std::vector<SmallCase> cases = SmallLayouts(400, GetParam());
  for (SmallCase& c : RandomSmallCases(500, 7, GetParam())) cases.push_back(std::move(c));
  std::mt19937_64 random(29);
  std::shuffle(cases.begin(), cases.end(), random);
  const char* asked = std::getenv("FORESHARD_SMALL_RUNS");
  if (asked == nullptr || std::string(asked) != "all") {
    const size_t usual = exec::sanitizers::kIsSanitized ? 45 : 400;
    cases.resize(asked == nullptr ? usual : std::strtoull(asked, nullptr, 10));
  }
  int plans = 0;
  for (const SmallCase& c : cases) {
    if (DependsOnShards(c) || !PlanOfCase(c).ok()) continue;
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(Check(c));
    if (HasFailure()) return;
    ++plans;
  }
  fmt::print("{} plans ran\n", plans);
  EXPECT_GT(plans, 10);
}

INSTANTIATE_TEST_SUITE_P(All, OneRankSmallWorld,
                         testing::Values(Library::kFsdp2, Library::kFsdp1, Library::kDdp),
                         [](const auto& library) { return Name(library.param); });

}  // namespace
}  // namespace foreshard
