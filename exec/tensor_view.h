// Tensors in memory, and what kernels are told besides them.
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace foreshard::exec
