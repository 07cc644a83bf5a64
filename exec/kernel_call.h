// From a plan's terms to a kernel's call.
#pragma once

#include "exec/tensor_view.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// The tensor that a type describes, whose first element is `offset` elements into the buffer.
TensorView ViewOf(const pb::TensorType& type, void* buffer, int64_t offset = 0);

KernelAttributes AttributesOf(const pb::Kernel& kernel);

}  // namespace foreshard::exec
