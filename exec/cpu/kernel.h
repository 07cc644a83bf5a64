// What a CPU kernel is: a function on typed views of memory, one for each row of the op library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "exec/tensor_view.h"

namespace foreshard::exec {

struct KernelCall {
  std::span<const TensorView> in;   // operands
  std::span<const TensorView> out;  // results; one that is also an operand is updated in place
  KernelAttributes attributes;
  uint64_t random = 0;  // key of the random numbers it draws (exec/random.h)
};

// Runs on the calling thread. Kernels keep what they need besides operands and results on the stack
// (kMaxKernelStack at most): they allocate nothing. Half precision is read and stored as such and
// computed in fp32, each result being rounded once. The same operands give the same bits, wherever
// they lie and whoever else runs. No result overlaps an operand, but for elementwise kernels whose
// result is one of them.
// REQUIRES: the op library's shape rule holds for the types; indices and labels are in range.
using CpuKernel = void (*)(const KernelCall&);
inline constexpr size_t kMaxKernelStack = 1 << 20;

// To be called once in a process before kernels run: matrix products stay on the calling thread.
void InitCpuKernels();

// The function for a row of the op library, for the widest instruction set of this machine; nullptr
// when there is none.
CpuKernel FindCpuKernel(std::string_view name);
// The same for any machine: equal results, more slowly.
CpuKernel FindBaselineCpuKernel(std::string_view name);

// Which machine the BLAS library takes this one for.
std::string_view BlasCore();

}  // namespace foreshard::exec
