// What elementwise kernels have in common: one function of short runs of floats, run over tensors
// of any dtype and layout.
#pragma once

#include <cstdint>

#include "exec/cpu/kernel.h"

namespace foreshard::exec::KERNEL_ISA {

// out[i] from in[0][i], in[1][i] for i < n. `out` overlaps no operand.
using ChunkFunction = void (*)(const float* const* in, float* out, int64_t n, float scalar);

// The first result from at most two operands, which broadcast to it.
void RunElementwise(const KernelCall& call, ChunkFunction function);

// Op::Of(x, scalar)
template <typename Op>
void UnaryChunk(const float* const* in, float* __restrict out, int64_t n, float scalar) {
  const float* __restrict x = in[0];
  for (int64_t i = 0; i < n; ++i) out[i] = Op::Of(x[i], scalar);
}
template <typename Op>
void Unary(const KernelCall& call) {
  RunElementwise(call, UnaryChunk<Op>);
}

// Op::Of(x, y, scalar)
template <typename Op>
void BinaryChunk(const float* const* in, float* __restrict out, int64_t n, float scalar) {
  const float* __restrict x = in[0];
  const float* __restrict y = in[1];
  for (int64_t i = 0; i < n; ++i) out[i] = Op::Of(x[i], y[i], scalar);
}
template <typename Op>
void Binary(const KernelCall& call) {
  RunElementwise(call, BinaryChunk<Op>);
}

}  // namespace foreshard::exec::KERNEL_ISA
