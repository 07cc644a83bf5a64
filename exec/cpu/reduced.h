// Elementwise work on reduced gradients.
#pragma once

#include "exec/device.h"

namespace foreshard::exec {

// All compute in fp32 and round once to the dtype that the elements have in memory.
void Scale(const ScaleInto& scale, const Launch& launch);
void Divide(const DivideElements& divide, const Launch& launch);
void Add(const AddElements& add, const Launch& launch);

}  // namespace foreshard::exec
