// Moving elements between buffers and types.
#pragma once

#include "exec/device.h"

namespace foreshard::exec {

// `numel` elements one behind the other; conversions round to nearest even. REQUIRES: the dtypes
// are equal, or both are floating-point.
void ConvertElements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t numel);

void Copy(const CopyElements& copy, const Launch& launch);

}  // namespace foreshard::exec
