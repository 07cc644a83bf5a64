// Kernels in one line: a name and shapes, all fp32.
#pragma once

#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::oplib {

using Shapes = std::vector<std::vector<int64_t>>;

inline pb::Kernel KernelOf(const std::string& name, const Shapes& operands, const Shapes& results) {
  pb::Kernel kernel;
  kernel.set_name(name);
  const auto fill = [](const std::vector<int64_t>& shape, pb::TensorType* type) {
    type->set_dtype(pb::FP32);
    for (int64_t d : shape) type->add_shape(d);
  };
  for (const auto& shape : operands) fill(shape, kernel.add_operands());
  for (const auto& shape : results) fill(shape, kernel.add_results());
  return kernel;
}

}  // namespace foreshard::oplib
