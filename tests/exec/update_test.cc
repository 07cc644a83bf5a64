// AdamW in 8 bits against torchao's, on one tensor (tests/exec/data/README.md).
#include "exec/cpu/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exec/cpu/quantize.h"
#include "proto/base/check.h"
#include "proto/base/safetensors.h"
#include "proto/oplib/optimizer_state.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {
namespace {

constexpr int64_t kNumel = 16 * 256;
constexpr int kSteps = 3;

template <typename T>
std::vector<T> Recorded(const std::string& name) {
  const auto file =
      Safetensors::Open(FORESHARD_SOURCE_DIR "/tests/exec/data/quantized_update.safetensors");
  CHECK(file.ok()) << file.status().message();
  const StoredTensor* tensor = file->Find(name);
  CHECK(tensor != nullptr) << name;
  std::vector<T> values(tensor->numel);
  CHECK(file->Read(*tensor, 0, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

TEST(QuantizedUpdate, MapsAreTorchaos) {
  EXPECT_TRUE(std::ranges::equal(SignedMap(), Recorded<float>("exp_avg/qmap")));
  EXPECT_TRUE(std::ranges::equal(UnsignedMap(), Recorded<float>("exp_avg_sq/qmap")));
}

// The state of one parameter of 4096 elements.
struct State {
  float step = 0;
  std::vector<std::byte> moments[2];
  State() {
    for (auto& m : moments) m.resize(oplib::MomentBytes(pb::ADAMW_8BIT, kNumel, 4));
  }
};

template <typename T>
Block BlockOf(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          static_cast<int64_t>(values.size() * sizeof(T))};
}

void RunSteps(std::vector<float>& parameter, State& state) {
  const std::vector<float> gradients = Recorded<float>("gradients");
  UpdateParameters update;
  update.rule = UpdateRule::kAdamW8Bit;
  update.learning_rate = 1e-2;
  update.beta1 = 0.9;
  update.beta2 = 0.999;
  update.eps = 1e-8;
  update.weight_decay = 1e-2;
  update.slices.push_back({{DType::kFp32, kNumel, 0, 0}, 0, 1});
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> gradient(gradients.begin() + step * kNumel,
                                gradients.begin() + (step + 1) * kNumel);
    Launch launch;
    launch.in = {BlockOf(gradient)};
    launch.out = {BlockOf(parameter),
                  {reinterpret_cast<std::byte*>(&state.step), 4},
                  BlockOf(state.moments[0]),
                  BlockOf(state.moments[1])};
    Update(update, launch);
  }
}

// A rounding elsewhere than in PyTorch moves a parameter by an ulp or so, and a value that lies in
// the middle between two codes to the other one.
TEST(QuantizedUpdate, FollowsTorchao) {
  std::vector<float> parameter = Recorded<float>("before");
  State state;
  RunSteps(parameter, state);
  const std::vector<float> after = Recorded<float>("after");
  for (int64_t i = 0; i < kNumel; ++i) ASSERT_NEAR(parameter[i], after[i], 1e-6) << i;
  EXPECT_EQ(state.step, kSteps);
  const char* names[] = {"exp_avg", "exp_avg_sq"};
  for (int m = 0; m < 2; ++m) {
    const auto codes = Recorded<uint8_t>(std::string(names[m]) + "/codes");
    const auto scales = Recorded<float>(std::string(names[m]) + "/scale");
    const auto* own = reinterpret_cast<const uint8_t*>(state.moments[m].data());
    const auto* own_scales = reinterpret_cast<const float*>(state.moments[m].data() + kNumel);
    int others = 0;
    for (int64_t i = 0; i < kNumel; ++i) {
      EXPECT_LE(std::abs(own[i] - codes[i]), 1) << names[m] << i;
      others += own[i] != codes[i] ? 1 : 0;
    }
    EXPECT_LE(others, kNumel / 1000) << names[m];
    for (size_t i = 0; i < scales.size(); ++i) {
      EXPECT_NEAR(own_scales[i], scales[i], 1e-6 * scales[i]) << names[m];
    }
  }
}

}  // namespace
}  // namespace foreshard::exec
