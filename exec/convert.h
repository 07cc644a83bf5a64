// Elements from one type to another.
#pragma once

#include <cstdint>

#include "proto/base/dtype.h"

namespace foreshard::exec {

// `numel` elements one behind the other; conversions round to nearest even. REQUIRES: the dtypes
// are equal, or both are floating-point.
void ConvertElements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t numel);

}  // namespace foreshard::exec
