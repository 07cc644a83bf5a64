#include "proto/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>

namespace foreshard {
namespace {

template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Divisible = requires(A a, B b) {
  a / b;
};
template <typename A, typename B>
concept Multipliable = requires(A a, B b) {
  a* b;
};
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
};

// What must compile, so that the refusals below refuse for the right reason.
static_assert(Addable<Bytes, Bytes>);
static_assert(Divisible<Bytes, BytesPerSecond>);
static_assert(Multipliable<Bytes, int64_t>);
static_assert(Comparable<Bytes, Bytes>);
static_assert(std::convertible_to<SimTime, Seconds>);

// What must not.
static_assert(!Addable<Bytes, Seconds>);
static_assert(!Addable<Bytes, BytesPerSecond>);
static_assert(!Addable<Bytes, Flops>);
static_assert(!Addable<Bytes, int64_t>);
static_assert(!Divisible<Bytes, FlopsPerSecond>);
static_assert(!Divisible<BytesPerSecond, Bytes>);
static_assert(!Multipliable<Bytes, Bytes>);
static_assert(!Comparable<Bytes, Flops>);
static_assert(!Comparable<Bytes, int64_t>);
static_assert(!std::convertible_to<int64_t, Bytes>);
static_assert(!std::convertible_to<Seconds, SimTime>);

TEST(Units, DivideIntoTimesRatesAndRatios) {
  EXPECT_EQ(Bytes(100) / BytesPerSecond(50), Seconds(2));
  EXPECT_EQ(Flops(6e12) / FlopsPerSecond(3e12), Seconds(2));
  EXPECT_EQ(Bytes(100) / Seconds(4), BytesPerSecond(25));
  EXPECT_EQ(Flops(8) / Seconds(4), FlopsPerSecond(2));
  EXPECT_EQ(Bytes(1) / Bytes(4), 0.25);
}

TEST(Units, AddScaleAndOrder) {
  Bytes sum(3);
  sum += Bytes(4);
  sum -= Bytes(2);
  EXPECT_EQ(sum, Bytes(5));
  EXPECT_EQ(2 * sum, Bytes(10));
  EXPECT_EQ(sum * 3, Bytes(15));
  EXPECT_LT(Bytes(4), sum);
  EXPECT_EQ(Bytes(), Bytes(0));
}

TEST(Units, ToSimTimeRoundsToPicoseconds) {
  EXPECT_EQ(ToSimTime(Seconds(0)).count(), 0);
  EXPECT_EQ(ToSimTime(Seconds(1.4e-12)).count(), 1);
  EXPECT_EQ(ToSimTime(Seconds(1.6e-12)).count(), 2);
  EXPECT_EQ(ToSimTime(Seconds(1)).count(), 1'000'000'000'000);
}

TEST(UnitsDeathTest, ToSimTimeRefusesWhatTheClockCannotHold) {
  EXPECT_DEATH(static_cast<void>(ToSimTime(Seconds(-1))), "CHECK failed");
  EXPECT_DEATH(static_cast<void>(ToSimTime(Seconds(1e6))), "CHECK failed");
  EXPECT_DEATH(static_cast<void>(ToSimTime(Seconds(std::nan("")))), "CHECK failed");
}

}  // namespace
}  // namespace foreshard
