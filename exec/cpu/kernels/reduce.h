// Sums and maxima of a short run of floats (kChunk at most). Element i goes to lane i modulo 32 and
// the lanes are joined in a fixed order: quick and accurate, and the same wherever it runs. Longer
// sums add those of their chunks in double precision.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace foreshard::exec::KERNEL_ISA {

typedef float Lanes __attribute__((vector_size(32)));  // NOLINT: gcc takes no `using` here
inline constexpr int64_t kLanes = 8;
inline constexpr int64_t kVectors = 4;

// Adds a term of a[i] and b[i] for each i: `vector` adds those of some lanes to a sum, `single` is
// the term of one float.
template <typename Vector, typename Single>
float SumOf(const float* a, const float* b, int64_t n, Vector vector, Single single) {
  Lanes sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      Lanes x, y;
      std::memcpy(&x, a + i + v * kLanes, sizeof(x));
      std::memcpy(&y, b + i + v * kLanes, sizeof(y));
      vector(sums[v], x, y);
    }
  }
  const Lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = ((all[0] + all[1]) + (all[2] + all[3])) + ((all[4] + all[5]) + (all[6] + all[7]));
  for (; i < n; ++i) sum += single(a[i], b[i]);
  return sum;
}

inline float Sum(const float* a, int64_t n) {
  return SumOf(
      a, a, n, [](Lanes& sum, const Lanes& x, const Lanes&) { sum += x; },
      [](float x, float) { return x; });
}

inline float Dot(const float* a, const float* b, int64_t n) {
  return SumOf(
      a, b, n, [](Lanes& sum, const Lanes& x, const Lanes& y) { sum += x * y; },
      [](float x, float y) { return x * y; });
}

// The largest, passing over not-a-number. REQUIRES: n > 0.
inline float Max(const float* a, int64_t n) {
  constexpr int64_t kWide = kVectors * kLanes;
  float lanes[kWide];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    for (int64_t l = 0; l < kWide; ++l) lanes[l] = a[i + l] > lanes[l] ? a[i + l] : lanes[l];
  }
  float max = lanes[0];
  for (const float lane : lanes) max = lane > max ? lane : max;
  for (; i < n; ++i) max = a[i] > max ? a[i] : max;
  return max;
}

}  // namespace foreshard::exec::KERNEL_ISA
