// Moving elements between buffers and types.
#pragma once

#include "exec/device.h"

namespace foreshard::exec {

void Copy(const CopyElements& copy, const Launch& launch);

}  // namespace foreshard::exec
