// Strong types for the quantities of the project. Only meaningful operators exist:
// Bytes / BytesPerSecond -> Seconds compiles, Bytes + BytesPerSecond does not (a test says so).
// GB is 10^9 and GiB is 2^30, always. Text forms are in proto/base/units_text.h.
#pragma once

#include <chrono>
#include <cmath>
#include <compare>
#include <cstdint>

#include "proto/base/check.h"

namespace foreshard {

// Simulated and modelled durations: `Seconds` in cost models, `SimTime` (whole picoseconds, 106
// days of range) on the event queue. SimTime becomes Seconds freely; the other way is ToSimTime.
using Seconds = std::chrono::duration<double>;
using SimTime = std::chrono::duration<int64_t, std::pico>;

// A number with a unit: same-unit sums, scaling, and ratios of equals.
template <typename Tag, typename Rep>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep count) : count_(count) {}
  constexpr Rep count() const { return count_; }

  constexpr Quantity& operator+=(Quantity o) { return count_ += o.count_, *this; }
  constexpr Quantity& operator-=(Quantity o) { return count_ -= o.count_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, Rep k) { return Quantity(a.count_ * k); }
  friend constexpr Quantity operator*(Rep k, Quantity a) { return a * k; }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.count_) / static_cast<double>(b.count_);
  }
  friend constexpr auto operator<=>(const Quantity&, const Quantity&) = default;

 private:
  Rep count_ = 0;
};

using Bytes = Quantity<struct BytesTag, int64_t>;
// One step of a 1T-parameter model on 16M tokens is about 1e20, past int64_t.
using Flops = Quantity<struct FlopsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return Seconds(static_cast<double>(b.count()) / r.count());
}
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return Seconds(f.count() / r.count()); }
constexpr BytesPerSecond operator/(Bytes b, Seconds s) {
  return BytesPerSecond(static_cast<double>(b.count()) / s.count());
}
constexpr FlopsPerSecond operator/(Flops f, Seconds s) {
  return FlopsPerSecond(f.count() / s.count());
}

// Rounds a modelled duration to the clock's picoseconds. REQUIRES: finite, 0 <= s < 10^6 seconds.
inline SimTime ToSimTime(Seconds s) {
  CHECK(s.count() >= 0 && s.count() < 1e6) << "duration of " << s.count() << " s on the clock";
  return SimTime(static_cast<int64_t>(std::llround(s.count() * 1e12)));
}

}  // namespace foreshard
