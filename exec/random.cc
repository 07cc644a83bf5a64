#include "exec/random.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

namespace foreshard::exec {
namespace {

r123::Philox4x32::ctr_type Draw(uint64_t key, uint64_t index) {
  const r123::Philox4x32::ctr_type counter = {
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}};
  const r123::Philox4x32::key_type philox_key = {
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  return r123::Philox4x32()(counter, philox_key);
}

// The top 24 bits, so that every value is a float and none is 1.
float ToUnit(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

}  // namespace

uint64_t RandomKey(std::initializer_list<uint64_t> parts) {
  uint64_t key = 0;
  for (uint64_t part : parts) key = ExtendKey(key, part);
  return key;
}

uint64_t ExtendKey(uint64_t key, uint64_t part) { return RandomBits(key, part); }

uint64_t RandomBits(uint64_t key, uint64_t index) {
  const auto r = Draw(key, index);
  return uint64_t{r.v[0]} | uint64_t{r.v[1]} << 32;
}

float RandomUniform(uint64_t key, uint64_t index) { return ToUnit(Draw(key, index).v[0]); }

float RandomNormal(uint64_t key, uint64_t index) {
  const auto r = Draw(key, index);
  const float radius = std::sqrt(-2 * std::log(1 - ToUnit(r.v[0])));
  return radius * std::cos(2 * std::numbers::pi_v<float> * ToUnit(r.v[1]));
}

}  // namespace foreshard::exec
