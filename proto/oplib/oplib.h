// The op library: every kernel that a plan may name, with its operand and result counts, its shape
// rule and its work. One row per kernel in proto/oplib/oplib.cc; kernels are stateless mathematics
// on whole tensors, independent of who runs them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "proto/base/status.h"

namespace foreshard::pb {
class Kernel;
}

namespace foreshard::oplib {

inline constexpr int kMaxDims = 6;  // of an operand or result

// Which model of a device prices a kernel.
enum class CostClass {
  kMatmul,     // dense matrix product on the matrix units
  kAttention,  // fused attention
  kMemory,     // bound by the bytes it moves
};

struct KernelInfo {
  std::string_view name;  // as Kernel.name spells it
  std::string_view aten;  // the PyTorch operator it stands for, as its profiler prints it
  int operands = 0;
  int results = 0;
  CostClass cost = CostClass::kMemory;
  // The shape rule: OK, or what is wrong with the operand and result types and attributes.
  Status (*check)(const pb::Kernel&) = nullptr;
  // Floating-point operations, multiply-add = 2. REQUIRES: check(kernel) is OK.
  double (*flops)(const pb::Kernel&) = nullptr;
  // What autograd's formula for it launches: rows of this library separated by spaces; "view" where
  // it only hands on or views the gradient; "none" where it has no formula, as autograd never
  // meets the kernel (fills, integers, kernels of backwards) or never asks for its derivative. Sums
  // over broadcast dimensions and casts of a gradient to its input's dtype are the engine's.
  std::string_view derivative;
  // Bytes that the kernel takes from the allocator while it runs. REQUIRES: check(kernel) is OK.
  int64_t (*scratch)(const pb::Kernel&) = nullptr;
};

// nullptr when the library has no such kernel.
const KernelInfo* Find(std::string_view name);

std::span<const KernelInfo> All();

// Whether the kernel draws random numbers: it drops with a probability above 0.
bool Draws(const pb::Kernel& kernel);

// Checks name, counts and shapes, then sets the kernel's flops, bytes and matmul fields.
Status Complete(pb::Kernel& kernel);

}  // namespace foreshard::oplib
