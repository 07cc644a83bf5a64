// Exponential and relatives without branches, so that loops over them vectorise, with the same bits
// on every instruction set. Their errors, in units in the last place, are tested in
// tests/exec/vector_math_test.cc: Exp 2, Tanh 4.
#pragma once

#include <bit>
#include <cstdint>

namespace foreshard::exec::KERNEL_ISA {

// e^x = 2^n e^r with n the integer nearest to x / ln 2, and e^r from a polynomial that interpolates
// at Chebyshev points of [-ln(2)/2, ln(2)/2].
inline float Exp(float x) {
  constexpr float kLow = -104;  // e^x rounds to 0 below
  constexpr float kHigh = 89;   // and is infinite above
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 10 bits, so that its product with n is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 0x1.8p23F;  // what is added to this is rounded to an integer
  const float clamped = x < kLow ? kLow : (x > kHigh ? kHigh : x);
  const float shifted = clamped * kLog2E + kRound;
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float whole = shifted - kRound;
  const float r = (clamped - whole * kLn2High) - whole * kLn2Low;
  const float tail =
      0.5F + r * (0.1666657667F + r * (0.0416665542F + r * (0.0083632329F + r * 0.0013926251F)));
  const float power = 1.0F + (r + r * r * tail);
  // In two factors, as 2^n alone may be out of range.
  const int32_t half = n >> 1;
  const float first = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float second = std::bit_cast<float>(static_cast<uint32_t>(n - half + 127) << 23);
  return power * first * second;
}

// A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
inline float Tanh(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float square = x * x;
  const float small =
      x +
      x * square *
          (-0.3333332894F +
           square * (0.1333276974F + square * (-0.0538509096F +
                                               square * (0.020997179F + square * -0.0060967142F))));
  const float large = 1.0F - 2.0F / (Exp(2.0F * magnitude) + 1.0F);
  const float signed_large = x < 0 ? -large : large;
  return magnitude < 0.625F ? small : signed_large;
}

// 1 / (1 + e^-x)
inline float Sigmoid(float x) { return 1.0F / (1.0F + Exp(-x)); }

}  // namespace foreshard::exec::KERNEL_ISA
