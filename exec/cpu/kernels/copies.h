// Copies and fills of whole tensors, which other kernels use as well.
#pragma once

#include <cstdint>

#include "exec/cpu/kernel.h"

namespace foreshard::exec::KERNEL_ISA {

// `from` broadcasts to `to`; dtypes may differ.
void CopyTensor(const TensorView& from, const TensorView& to);
void FillTensor(double value, const TensorView& to);

// The part [start, start + length) along a dimension.
TensorView Narrowed(TensorView t, int dim, int64_t start, int64_t length);

}  // namespace foreshard::exec::KERNEL_ISA
