// Moments in 8 bits, as torchao's optimizers keep them (torchao/optim/subclass_8bit.py): a code for
// each element, which stands for a value of a table, and a scale for each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace foreshard::exec {

using QuantizationMap = std::array<float, 256>;

// Values in ascending order, denser near 0 ("dynamic tree" of arXiv:2110.02861), with both signs or
// from 0 up.
const QuantizationMap& SignedMap();
const QuantizationMap& UnsignedMap();

// A moment of `numel` elements that starts at `data`.
class QuantizedMoment {
 public:
  QuantizedMoment(std::byte* data, int64_t numel, const QuantizationMap& map);
  // REQUIRES, of both: whole blocks.
  void Load(int64_t begin, int64_t n, float* values) const;
  void Store(int64_t begin, int64_t n, const float* values);

 private:
  uint8_t* codes_;
  float* scales_;
  const QuantizationMap& map_;
};

}  // namespace foreshard::exec
