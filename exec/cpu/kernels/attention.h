// Attention by blocks, as its forward and backward share it: scores of some queries with some keys
// are computed, used and forgotten.
#pragma once

#include <cstdint>

#include "exec/cpu/kernel.h"
#include "exec/cpu/kernels/gemm.h"

namespace foreshard::exec::KERNEL_ISA {

inline constexpr int64_t kMaxQueries = 64;  // of a block
inline constexpr int64_t kMaxKeys = 256;
// Floats of a block's queries, keys or values: heads of up to 512 have full blocks of queries.
inline constexpr int64_t kHeadTile = 32768;

// q [B, H, T, D], k and v [B, G, S, D]: query head h reads key head h / (H / G).
struct AttentionProblem {
  AttentionProblem(const TensorView& q, const TensorView& k, const KernelCall& call);

  // Keys before this one are all that queries before `query_end` see.
  int64_t KeyEnd(int64_t query_end) const { return causal && query_end < keys ? query_end : keys; }

  int64_t batch, heads, groups, queries, keys, size;
  bool causal;  // query i sees keys 0 .. i
  float scale;
  float drop;        // probability
  float keep_scale;  // 1 / (1 - drop)
  uint64_t random;
  int64_t query_block, key_block;
};

// Some queries of a head and some keys.
struct AttentionBlock {
  int64_t b, h;
  int64_t query, queries;
  int64_t key, keys;
};

// [T, D] of one head.
Matrix HeadOf(const TensorView& t, int64_t b, int64_t h);
// Some rows of it.
Matrix RowsOf(const TensorView& t, int64_t b, int64_t h, int64_t row, int64_t rows);

// Scores of keys that a query does not see become minus infinity.
void MaskScores(const AttentionProblem& p, const AttentionBlock& block, float* scores);
// What dropout multiplies a probability by: 0 or keep_scale.
float DropFactor(const AttentionProblem& p, const AttentionBlock& block, int64_t row,
                 int64_t column);

void AttentionForward(const KernelCall& call);
// gradient, q, k, v, out, logsumexp, ... -> dq, dk, dv
void AttentionBackward(const KernelCall& call);

}  // namespace foreshard::exec::KERNEL_ISA
