// The rows of the op library by subject. kernels/*.cc are compiled once for each instruction set,
// in a namespace named after it (KERNEL_ISA, set by the build), and must be the same to the last
// bit on all: no contraction, no reordering of sums. Headers that they share with the rest of the
// program must not define functions that could be emitted from here.
#pragma once

#include <span>
#include <string_view>

#include "exec/cpu/kernel.h"

namespace foreshard::exec::KERNEL_ISA {

struct NamedKernel {
  std::string_view name;
  CpuKernel run;
};

std::span<const NamedKernel> ElementwiseKernels();
std::span<const NamedKernel> ActivationKernels();
std::span<const NamedKernel> DropoutKernels();
std::span<const NamedKernel> CopyKernels();
std::span<const NamedKernel> SumKernels();
std::span<const NamedKernel> SoftmaxKernels();
std::span<const NamedKernel> MatmulKernels();
std::span<const NamedKernel> NormKernels();
std::span<const NamedKernel> RopeKernels();
std::span<const NamedKernel> EmbeddingKernels();
std::span<const NamedKernel> LossKernels();
std::span<const NamedKernel> AttentionKernels();

// The function for a row; nullptr when there is none.
CpuKernel FindKernel(std::string_view name);

}  // namespace foreshard::exec::KERNEL_ISA
