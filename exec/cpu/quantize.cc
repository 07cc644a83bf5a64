#include "exec/cpu/quantize.h"

#include <algorithm>
#include <cmath>

#include "proto/oplib/optimizer_state.h"

namespace foreshard::exec {
namespace {

using oplib::kQuantizedBlock;

constexpr int kExponents = 7;
constexpr float kSmallestScale = 1e-12F;

// As torch.linspace computes, from both ends.
float Linspace(float start, float end, int steps, int i) {
  const float step = (end - start) / static_cast<float>(steps - 1);
  return i < steps / 2 ? std::fma(step, static_cast<float>(i), start)
                       : std::fma(-step, static_cast<float>(steps - 1 - i), end);
}

// Between 10^e / 10 and 10^e lie twice as many values as in the decade below.
QuantizationMap MakeMap(bool with_signs) {
  QuantizationMap map{};
  size_t next = 0;
  for (int e = 0; e < kExponents; ++e) {
    const int values = 1 << (with_signs ? e : e + 1);
    const auto decade = static_cast<float>(std::pow(10.0, e - (kExponents - 1)));
    for (int i = 0; i < values; ++i) {
      const float mean =
          (Linspace(0.1F, 1, values + 1, i) + Linspace(0.1F, 1, values + 1, i + 1)) / 2.0F;
      map[next++] = decade * mean;
      if (with_signs) map[next++] = -decade * mean;
    }
  }
  map[next++] = 0;
  map[next++] = 1;
  std::ranges::sort(map);
  return map;
}

// The code whose value is nearest, the upper of two.
uint8_t CodeOf(const QuantizationMap& map, float value) {
  const auto above = std::upper_bound(map.begin() + 1, map.end(), value);
  const auto down = above - 1 - map.begin();
  const auto up = std::min<int64_t>(down + 1, 255);
  return static_cast<uint8_t>(value - map[down] >= (map[up] - map[down]) * 0.5F ? up : down);
}

}  // namespace

const QuantizationMap& SignedMap() {
  static const QuantizationMap map = MakeMap(true);
  return map;
}

const QuantizationMap& UnsignedMap() {
  static const QuantizationMap map = MakeMap(false);
  return map;
}

QuantizedMoment::QuantizedMoment(std::byte* data, int64_t numel, const QuantizationMap& map)
    : codes_(reinterpret_cast<uint8_t*>(data)),
      scales_(reinterpret_cast<float*>(data + numel)),
      map_(map) {}

void QuantizedMoment::Load(int64_t begin, int64_t n, float* values) const {
  for (int64_t i = 0; i < n; ++i) {
    values[i] = map_[codes_[begin + i]] * scales_[(begin + i) / kQuantizedBlock];
  }
}

void QuantizedMoment::Store(int64_t begin, int64_t n, const float* values) {
  for (int64_t block = 0; block < n; block += kQuantizedBlock) {
    const float* x = values + block;
    float scale = kSmallestScale;
    for (int64_t i = 0; i < kQuantizedBlock; ++i) scale = std::max(scale, std::abs(x[i]));
    scales_[(begin + block) / kQuantizedBlock] = scale;
    for (int64_t i = 0; i < kQuantizedBlock; ++i) {
      codes_[begin + block + i] = CodeOf(map_, x[i] / scale);
    }
  }
}

}  // namespace foreshard::exec
