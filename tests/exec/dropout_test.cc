// Dropout draws numbers that nobody else's library draws; these are its properties.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/exec/typed_tensor.h"

namespace foreshard::exec {
namespace {

constexpr double kP = 0.3;
constexpr float kScale = 1 / 0.7;
constexpr uint64_t kKey = 77;

KernelAttributes Probability(double p) {
  KernelAttributes a;
  a.scalar = p;
  return a;
}

struct Dropped {
  explicit Dropped(std::vector<int64_t> shape) : y(shape), mask(shape, DType::kBool) {}
  TypedTensor<float> y;
  TypedTensor<uint8_t> mask;
};

Dropped Drop(TypedTensor<float>& x, double p, uint64_t key) {
  Dropped d(x.shape);
  RunKernel("dropout", {x.view()}, {d.y.view(), d.mask.view()}, Probability(p), key);
  return d;
}

TEST(Dropout, KeepsElementsByTheirNumberAndScalesThem) {
  TypedTensor<float> x = RandomTensor({100, 200}, 1);
  const Dropped d = Drop(x, kP, kKey);
  int64_t kept = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    const bool keep = RandomUniform(kKey, i) >= static_cast<float>(kP);
    EXPECT_EQ(d.mask.values[i], keep ? 1 : 0);
    EXPECT_EQ(d.y.values[i], keep ? x.values[i] * kScale : 0);
    kept += d.mask.values[i];
  }
  // 20000 draws: four standard deviations of the share are 4 sqrt(0.3 * 0.7 / 20000) = 0.013.
  EXPECT_NEAR(static_cast<double>(kept) / 20000, 1 - kP, 0.013);
}

TEST(Dropout, TheKeyDecides) {
  TypedTensor<float> x = RandomTensor({1000}, 1);
  EXPECT_EQ(Drop(x, kP, kKey).mask.values, Drop(x, kP, kKey).mask.values);
  EXPECT_NE(Drop(x, kP, kKey).mask.values, Drop(x, kP, kKey + 1).mask.values);
}

TEST(Dropout, ElementsAreCountedRowByRowWhateverTheLayout) {
  TypedTensor<float> x = RandomTensor({7, 5}, 1);
  const Dropped d = Drop(x, kP, kKey);
  // The same matrix stored by columns, and so are its results.
  TypedTensor<float> turned({5, 7}), y({5, 7});
  TypedTensor<uint8_t> mask({5, 7}, DType::kBool);
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 5; ++j) turned.values[j * 7 + i] = x.values[i * 5 + j];
  }
  const auto by_columns = [](TensorView v) {
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.strides[0], v.strides[1]);
    return v;
  };
  RunKernel("dropout", {by_columns(turned.view())}, {by_columns(y.view()), by_columns(mask.view())},
            Probability(kP), kKey);
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 5; ++j) {
      EXPECT_EQ(mask.values[j * 7 + i], d.mask.values[i * 5 + j]);
      EXPECT_EQ(y.values[j * 7 + i], d.y.values[i * 5 + j]);
    }
  }
}

TEST(Dropout, BackwardScalesWhatForwardKept) {
  TypedTensor<float> x = RandomTensor({40, 30}, 1), g = RandomTensor({40, 30}, 2), dx({40, 30});
  Dropped d = Drop(x, kP, kKey);
  RunKernel("dropout_backward", {g.view(), d.mask.view()}, {dx.view()}, Probability(kP));
  for (size_t i = 0; i < g.values.size(); ++i) {
    EXPECT_EQ(dx.values[i], d.mask.values[i] ? g.values[i] * kScale : 0);
  }
}

TEST(Dropout, MasksAreWhatDropoutMultipliesBy) {
  TypedTensor<float> ones({50, 20}), mask({50, 20});
  RunKernel("ones", {}, {ones.view()});
  RunKernel("dropout_mask", {}, {mask.view()}, Probability(kP), kKey);
  EXPECT_EQ(mask.values, Drop(ones, kP, kKey).y.values);
}

TEST(Dropout, ProbabilitiesZeroAndOneKeepAllAndNothing) {
  TypedTensor<float> x = RandomTensor({100}, 1);
  EXPECT_EQ(Drop(x, 0, kKey).y.values, x.values);
  EXPECT_EQ(Drop(x, 1, kKey).y.values, std::vector<float>(100, 0));
}

TEST(Dropout, AttentionCountsItsProbabilitiesAsATensor) {
  // With queries of zero all four probabilities are a quarter, and values that are a unit matrix
  // hand them out one by one.
  constexpr int64_t kB = 2, kH = 4, kG = 2, kT = 3, kS = 4, kD = 4;
  TypedTensor<float> q({kB, kH, kT, kD}), k({kB, kG, kS, kD}), v({kB, kG, kS, kD});
  for (int64_t i = 0; i < kB * kG * kS; ++i) v.values[i * kD + i % kS] = 1;
  TypedTensor<float> out({kB, kH, kT, kD}), log_sums({kB, kH, kT});
  KernelAttributes a;
  a.attention = {false, 0.5, kP};
  RunKernel("attention", {q.view(), k.view(), v.view()}, {out.view(), log_sums.view()}, a, kKey);
  for (int64_t i = 0; i < kB * kH * kT * kS; ++i) {
    // Element ((b H + h) T + row) S + column, and as D = S that is the result's own place.
    const bool keep = RandomUniform(kKey, i) >= static_cast<float>(kP);
    EXPECT_FLOAT_EQ(out.values[i], keep ? 0.25F * kScale : 0);
  }
  for (const float s : log_sums.values) EXPECT_FLOAT_EQ(s, std::log(4.0F));
}

}  // namespace
}  // namespace foreshard::exec
