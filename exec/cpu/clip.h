// Clipping gradients on host memory.
#pragma once

#include "exec/device.h"

namespace foreshard::exec {

// In several sums at once, so that none waits for another; always as many, so that the result does
// not depend on the machine.
double SumOfSquares(const float* x, int64_t n);

void Measure(const MeasureGradients& measure, const Launch& launch);
void Scale(const ScaleGradients& scale, const Launch& launch);

}  // namespace foreshard::exec
