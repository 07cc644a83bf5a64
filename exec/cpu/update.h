// The optimizer on host memory.
#pragma once

#include "exec/device.h"

namespace foreshard::exec {

// One step of AdamW or SGD as PyTorch defines them (torch.optim), or of torchao's AdamW in 8 bits,
// in fp32 whatever the storage. Elementwise, so that the result for an element does not depend on
// how parameters are cut.
void Update(const UpdateParameters& update, const Launch& launch);

}  // namespace foreshard::exec
