// The two half-precision formats in plain arithmetic without branches, so that loops over them
// vectorise. Narrowing rounds to nearest, ties to even; not-a-number stays one.
#pragma once

#include <bit>
#include <cstdint>

namespace foreshard::exec::KERNEL_ISA {

inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float FromBf16(uint16_t x) { return FloatOf(uint32_t{x} << 16); }

inline uint16_t ToBf16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>(nan ? quiet : rounded);
}

inline float FromFp16(uint16_t x) {
  constexpr uint32_t kBias = uint32_t{127 - 15} << 23;
  const uint32_t magnitude = x & 0x7fffU;
  const uint32_t normal = (magnitude << 13) + kBias;
  const uint32_t special = normal + kBias;  // infinity and not-a-number keep all exponent bits
  const uint32_t subnormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  const uint32_t finite = magnitude < 0x400U ? subnormal : normal;
  return FloatOf((magnitude >= 0x7c00U ? special : finite) | (uint32_t{x} & 0x8000U) << 16);
}

inline uint16_t ToFp16(float x) {
  constexpr uint32_t kBias = uint32_t{127 - 15} << 23;
  const uint32_t bits = BitsOf(x);
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t shifted = magnitude - kBias;
  const uint32_t normal = (shifted + 0xfffU + ((shifted >> 13) & 1U)) >> 13;
  // The last place of 0.5 is that of fp16's subnormal numbers, so the sum is rounded to it.
  const uint32_t subnormal = BitsOf(FloatOf(magnitude) + 0.5F) - BitsOf(0.5F);
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const uint32_t result = magnitude >= 0x477ff000U ? large : finite;
  return static_cast<uint16_t>(result | (bits >> 16 & 0x8000U));
}

}  // namespace foreshard::exec::KERNEL_ISA
