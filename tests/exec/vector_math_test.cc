// Accuracy of the kernels' own exponential and hyperbolic tangent.
#include "exec/cpu/kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exec/cpu/kernels/half.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Error in units in the last place of the exact value's float, subnormal numbers included.
double Ulps(float found, double exact) {
  const double magnitude = std::max(std::fabs(exact), 0x1p-126);
  const double unit = std::exp2(std::floor(std::log2(magnitude)) - 23);
  return std::fabs(found - exact) / unit;
}

// Calls visit(x) for floats from low to high, about evenly in their bits.
template <typename Visit>
void ForFloats(float low, float high, Visit visit) {
  for (float x = low; x <= high; x = std::nextafter(x + std::fabs(x) * 1e-5F, kInfinity)) visit(x);
}

TEST(VectorMath, ExpIsWithinTwoUnits) {
  double worst = 0;
  const auto check = [&](float x) { worst = std::max(worst, Ulps(Exp(x), std::exp(double{x}))); };
  ForFloats(1e-8F, 88.7F, [&](float x) {
    check(x);
    check(-x);
  });
  for (float x = -104; x < -80; x += 0.001F) check(x);
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0.5) << "nothing was measured";
}

TEST(VectorMath, TanhIsWithinFourUnits) {
  double worst = 0;
  ForFloats(1e-8F, 20, [&](float x) {
    worst = std::max(worst, Ulps(Tanh(x), std::tanh(double{x})));
    worst = std::max(worst, Ulps(Tanh(-x), std::tanh(-double{x})));
  });
  EXPECT_LE(worst, 4);
}

TEST(VectorMath, LimitsAreExact) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(-200), 0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(90), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(NAN)));
  EXPECT_EQ(Tanh(0), 0);
  EXPECT_EQ(Tanh(50), 1);
  EXPECT_EQ(Tanh(-50), -1);
  EXPECT_EQ(Tanh(kInfinity), 1);
  EXPECT_EQ(Tanh(-kInfinity), -1);
  EXPECT_TRUE(std::isnan(Tanh(NAN)));
}

TEST(Half, EveryNumberComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float bf16 = FromBf16(half);
    const float fp16 = FromFp16(half);
    EXPECT_TRUE(std::isnan(bf16) ? std::isnan(FromBf16(ToBf16(bf16))) : ToBf16(bf16) == half);
    EXPECT_TRUE(std::isnan(fp16) ? std::isnan(FromFp16(ToFp16(fp16))) : ToFp16(fp16) == half);
  }
}

// Between two neighbours the nearer one is taken, and the even one from the middle.
TEST(Half, RoundsToNearestEven) {
  const auto check = [](auto narrow, auto widen, uint16_t limit) {
    for (uint16_t half = 0; half < limit; ++half) {
      const float a = widen(half);
      const float b = widen(static_cast<uint16_t>(half + 1));
      const float middle = a / 2 + b / 2;
      const auto even = static_cast<uint16_t>(half + (half & 1));
      EXPECT_EQ(narrow(middle), even) << half;
      EXPECT_EQ(narrow(std::nextafter(middle, a)), half) << half;
      EXPECT_EQ(narrow(std::nextafter(middle, b)), half + 1) << half;
    }
  };
  check(ToFp16, FromFp16, 0x7bff);
  // From normal numbers on: the middle of two subnormal ones is exact as well, but not half of it.
  check(ToBf16, FromBf16, 0x7f7f);
}

}  // namespace
}  // namespace foreshard::exec::KERNEL_ISA
