#include "exec/cpu/kernels/groups.h"

namespace foreshard::exec::KERNEL_ISA {

CpuKernel FindKernel(std::string_view name) {
  const std::span<const NamedKernel> groups[] = {
      ElementwiseKernels(), ActivationKernels(), DropoutKernels(), CopyKernels(),
      SumKernels(),         SoftmaxKernels(),    MatmulKernels(),  NormKernels(),
      RopeKernels(),        EmbeddingKernels(),  LossKernels(),    AttentionKernels()};
  for (const std::span<const NamedKernel> group : groups) {
    for (const NamedKernel& kernel : group) {
      if (kernel.name == name) return kernel.run;
    }
  }
  return nullptr;
}

}  // namespace foreshard::exec::KERNEL_ISA
