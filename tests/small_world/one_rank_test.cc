// Sharded training is the same as training without shards, bit by bit: losses and weights of every
// way to cut a tiny Llama and a tiny GPT-2 equal those of the one-rank reference.
#include "tests/testing/one_rank.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

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

void Check(const SmallCase& sharded) {
  SmallCase alone = sharded;
  alone.request.world_size = 1;
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
  OneRankReference reference(*one, sharded.request.world_size, kSeed, *weights, *data);
  for (int step = 0; step < kSteps; ++step) {
    double mean = 0;
    for (const double loss : reference.Step()) mean += loss;
    mean /= sharded.request.world_size;
    EXPECT_EQ(outcome->steps[step].losses[0], mean) << "step " << step;
  }
  ExpectSameBits(outcome->weights, reference.weights());
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

}  // namespace
}  // namespace foreshard
