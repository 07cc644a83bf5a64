// What kernels check of values, as shape rules cannot.
#pragma once

#include <cstdint>
#include <string_view>

namespace foreshard::exec {

// Ends the program unless 0 <= index < extent.
void CheckIndex(std::string_view what, int64_t index, int64_t extent);

}  // namespace foreshard::exec
