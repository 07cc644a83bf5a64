// Values of a model's tensors that are no parameters.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::exec {

// In fp32 arithmetic, as PyTorch code computes them, so that rounding agrees with it.
std::vector<float> Frequencies(const pb::RotaryFrequencies& rotary, int64_t count);

}  // namespace foreshard::exec
