// Shape rules and work of the kernels, shared by the rows of the op library's table.
#pragma once

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::oplib {

// ---- shape rules
Status Elementwise(const pb::Kernel& k);  // every operand broadcasts to the result
Status RowWise(const pb::Kernel& k);      // the result and every operand have the same rows
Status InPlaceAdd(const pb::Kernel& k);   // the result is the first operand
Status Dropout(const pb::Kernel& k);      // x -> y, mask
Status Fill(const pb::Kernel& k);         // no operand matters
Status Copies(const pb::Kernel& k);       // same shape, same dtype
Status CastRule(const pb::Kernel& k);     // same shape
Status Scalar(const pb::Kernel& k);       // unary with a scalar attribute
Status DivExpand(const pb::Kernel& k);    // last dimension 1 -> scalar
Status MeanLast(const pb::Kernel& k);
Status SumAll(const pb::Kernel& k);
Status SumTo(const pb::Kernel& k);  // each result dimension is the operand's or 1
Status SumDim(const pb::Kernel& k);
Status PadLast(const pb::Kernel& k);  // with a scalar, behind the last dimension
Status Cat(const pb::Kernel& k);      // along the last dimension
Status SliceBackward(const pb::Kernel& k);
Status Mm(const pb::Kernel& k);         // [M, K] x [K, N]
Status Addmm(const pb::Kernel& k);      // [N] + [M, K] x [K, N]
Status Bmm(const pb::Kernel& k);        // [B, M, K] x [B, K, N]
Status Embedding(const pb::Kernel& k);  // weight [V, h], indices
Status EmbeddingBackward(const pb::Kernel& k);
Status LayerNorm(const pb::Kernel& k);  // x, weight[, bias] -> y, mean, rstd
Status LayerNormBackward(const pb::Kernel& k);
Status RmsNorm(const pb::Kernel& k);  // x, weight -> y, rstd
Status RmsNormBackward(const pb::Kernel& k);
Status Rope(const pb::Kernel& k);     // x [B, H, T, D], cos, sin [1 or B, T, D]; D is even
Status NllLoss(const pb::Kernel& k);  // log probabilities [M, V], labels -> loss, weight
Status NllLossBackward(const pb::Kernel& k);
Status CrossEntropy(const pb::Kernel& k);  // logits [M, V], labels -> loss, logsumexp [M]
Status CrossEntropyBackward(const pb::Kernel& k);
Status Attention(const pb::Kernel& k);  // q [B, H, T, D], k and v [B, G, S, D] -> out, lse, ...
Status AttentionBackward(const pb::Kernel& k);

// ---- work, multiply-add = 2
double NoFlops(const pb::Kernel& k);
double OnePerResult(const pb::Kernel& k);
double OnePerOperand(const pb::Kernel& k);
double MatmulFlops(const pb::Kernel& k);
// 4 B H T S D, halved by a causal mask; the backward does five products where forward does two.
double AttentionFlops(const pb::Kernel& k);
double AttentionBackwardFlops(const pb::Kernel& k);

// ---- scratch, bytes
int64_t NoScratch(const pb::Kernel& k);
// What FlashAttention-2's CUDA backward allocates: an fp32 accumulator of dq with the rows rounded
// to 128 and the head size to 32, the row sums of dout * out, and for grouped heads dk and dv at
// the size of the query heads.
int64_t FlashBackwardScratch(const pb::Kernel& k);

// Elements of a type; 0 for invalid dimensions. Saturates instead of overflowing.
int64_t NumelOf(const pb::TensorType& t);

}  // namespace foreshard::oplib
