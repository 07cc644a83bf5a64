// Differentiable operators of the eager emulation, named after PyTorch's. Each launches the kernels
// that PyTorch would launch, in its order, and records what autograd saves. Shapes in comments:
// B batch, T tokens, H heads, D head size, M rows, N, K features.
#pragma once

#include "planner/eager/eager.h"

namespace foreshard::ops {

// ---- views (no memory unless a copy is unavoidable)
Tensor Reshape(Eager& e, const Tensor& x, const Dims& shape);  // copies when strides forbid a view
Tensor Transpose(Eager& e, const Tensor& x, int a, int b);
Tensor Slice(Eager& e, const Tensor& x, int dim, int64_t start, int64_t length);
Tensor Unsqueeze(Eager& e, const Tensor& x, int dim);
std::vector<Tensor> Chunk(Eager& e, const Tensor& x, int count);  // along the last dimension
Tensor Contiguous(Eager& e, const Tensor& x);                     // x itself when it is already

// ---- elementwise, with PyTorch's broadcasting and type promotion
Tensor Add(Eager& e, const Tensor& a, const Tensor& b);
Tensor Mul(Eager& e, const Tensor& a, const Tensor& b);
Tensor AddScalar(Eager& e, const Tensor& x, double value);
void AddScalarInPlace(Eager& e, const Tensor& x, double value);
Tensor MulScalar(Eager& e, const Tensor& x, double value);
Tensor Neg(Eager& e, const Tensor& x);
Tensor Pow(Eager& e, const Tensor& x, double exponent);
Tensor Tanh(Eager& e, const Tensor& x);
Tensor Rsqrt(Eager& e, const Tensor& x);
Tensor Cast(Eager& e, const Tensor& x, DType to);  // x itself when it is of that type
Tensor Relu(Eager& e, const Tensor& x);
Tensor Gelu(Eager& e, const Tensor& x);
Tensor GeluTanh(Eager& e, const Tensor& x);
Tensor Silu(Eager& e, const Tensor& x);
Tensor Unary(Eager& e, const char* kernel, const Tensor& x);  // cos, sin: no derivative

// ---- reductions and joins
Tensor MeanLast(Eager& e, const Tensor& x);  // keeps the dimension
Tensor SumAll(Eager& e, const Tensor& x);
Tensor CatLast(Eager& e, const Tensor& a, const Tensor& b);
Tensor RepeatHeads(Eager& e, const Tensor& x, int64_t count);  // [B, H, T, D] -> [B, H*count, T, D]

// ---- matrix products
Tensor Linear(Eager& e, const Tensor& x, const Tensor& weight, const Tensor* bias);
// The same with the weight stored [in, out], as GPT-2's Conv1D.
Tensor Conv1d(Eager& e, const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor Bmm(Eager& e, const Tensor& a, const Tensor& b);  // [M, N, K] x [M, K, P]

// ---- modules' kernels
Tensor Embedding(Eager& e, const Tensor& indices, const Tensor& weight);
// Statistics of `stats` dtype: CUDA keeps fp32, CPU the input's.
Tensor LayerNorm(Eager& e, const Tensor& x, const Tensor& weight, const Tensor* bias, double eps,
                 DType stats);
Tensor FusedRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps);
Tensor FusedRope(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin);
// The CUDA operator keeps a boolean mask; the CPU's composite multiplies by a mask of x's dtype.
Tensor FusedDropout(Eager& e, const Tensor& x, double p);
Tensor CompositeDropout(Eager& e, const Tensor& x, double p);
Tensor SafeSoftmax(Eager& e, const Tensor& x);

// ---- fused attention over q [B, H, T, D] and k, v [B, G, T, D]
enum class AttentionKernel { kFlashCuda, kFlashCpu, kFlash, kEfficient };
Tensor FusedAttention(Eager& e, AttentionKernel kernel, const Tensor& q, const Tensor& k,
                      const Tensor& v, bool causal, double dropout);

// ---- losses
Tensor LogSoftmax(Eager& e, const Tensor& x);  // [M, V]
Tensor NllLoss(Eager& e, const Tensor& log_probs, const Tensor& labels);
// Labels [B, T] for the next token of each, from the tokens themselves; the last counts for
// nothing.
Tensor ShiftLabels(Eager& e, const Tensor& labels);
Tensor FusedCrossEntropy(Eager& e, const Tensor& logits, const Tensor& labels);

// ---- for the engine
Tensor SumTo(Eager& e, const Tensor& gradient, const Dims& shape);
// A copy of a gradient whose elements share memory (an expanded sum); others as they are.
Tensor Dense(Eager& e, const Tensor& gradient);
Tensor CastGradient(Eager& e, const Tensor& gradient, DType to);

}  // namespace foreshard::ops
