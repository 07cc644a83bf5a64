#include "exec/module_buffers.h"

#include <cmath>
#include <numbers>

namespace foreshard::exec {
namespace {

// Llama 3's: long waves are stretched, short ones kept, those between blended.
float Stretch(const pb::RotaryFrequencies& rotary, float frequency) {
  const auto factor = static_cast<float>(rotary.factor());
  if (rotary.original_positions() == 0) return frequency / factor;
  const auto positions = static_cast<float>(rotary.original_positions());
  const auto low = static_cast<float>(rotary.low_frequency_factor());
  const auto high = static_cast<float>(rotary.high_frequency_factor());
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength < positions / high) return frequency;
  if (wavelength > positions / low) return frequency / factor;
  const float blend = (positions / wavelength - low) / (high - low);
  return (1 - blend) * frequency / factor + blend * frequency;
}

}  // namespace

std::vector<float> Frequencies(const pb::RotaryFrequencies& rotary, int64_t count) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * count);
    const float frequency = 1 / std::pow(static_cast<float>(rotary.theta()), exponent);
    frequencies.push_back(rotary.factor() > 0 ? Stretch(rotary, frequency) : frequency);
  }
  return frequencies;
}

}  // namespace foreshard::exec
