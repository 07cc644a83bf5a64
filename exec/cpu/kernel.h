// What a CPU kernel is: a function on typed views of memory, one for each row of the op library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "proto/base/dtype.h"

namespace foreshard::exec {

inline constexpr int kMaxDims = 6;  // as in plans

// A tensor in memory that somebody else owns. Element (i, j, ...) is at data + (i * strides[0] +
// j * strides[1] + ...) elements; strides may be 0 (expanded) or permuted.
struct TensorView {
  DType dtype = DType::kFp32;
  int dims = 0;
  std::array<int64_t, kMaxDims> shape{};
  std::array<int64_t, kMaxDims> strides{};  // elements
  void* data = nullptr;
};

// The attributes of a plan's kernel; those that its row does not use are 0.
struct KernelAttributes {
  double scalar = 0;
  double eps = 0;
  int64_t dim = 0;
  struct {
    int64_t dim = 0, start = 0, length = 0;
  } slice;
  struct {
    bool causal = false;
    double scale = 0;
    double dropout = 0;  // probability
  } attention;
};

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
