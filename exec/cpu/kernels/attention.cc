#include "exec/cpu/kernels/attention.h"

#include <cmath>
#include <limits>

#include "exec/cpu/kernel_check.h"
#include "exec/cpu/kernels/convert.h"
#include "exec/cpu/kernels/copies.h"
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/reduce.h"
#include "exec/cpu/kernels/vector_math.h"
#include "exec/cpu/kernels/walk.h"
#include "exec/random.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

AttentionProblem::AttentionProblem(const TensorView& q, const TensorView& k, const KernelCall& call)
    : batch(q.shape[0]),
      heads(q.shape[1]),
      groups(k.shape[1]),
      queries(q.shape[2]),
      keys(k.shape[2]),
      size(q.shape[3]),
      causal(call.attributes.attention.causal),
      scale(static_cast<float>(call.attributes.attention.scale)),
      drop(static_cast<float>(call.attributes.attention.dropout)),
      keep_scale(drop < 1 ? static_cast<float>(1 / (1 - call.attributes.attention.dropout)) : 0),
      random(call.random) {
  CheckIndex("head size", size, kHeadTile + 1);
  const int64_t fitting = kHeadTile / (size > 0 ? size : 1);
  query_block = Min(fitting, kMaxQueries);
  key_block = Min(fitting, kMaxKeys);
}

Matrix HeadOf(const TensorView& t, int64_t b, int64_t h) {
  return LastTwo(t, b * t.strides[0] + h * t.strides[1]);
}

Matrix RowsOf(const TensorView& t, int64_t b, int64_t h, int64_t row, int64_t rows) {
  return Block(HeadOf(t, b, h), row, rows, 0, t.shape[3]);
}

void MaskScores(const AttentionProblem& p, const AttentionBlock& block, float* scores) {
  if (!p.causal) return;
  for (int64_t row = 0; row < block.queries; ++row) {
    const int64_t seen = block.query + row + 1 - block.key;
    for (int64_t c = seen < 0 ? 0 : seen; c < block.keys; ++c) {
      scores[row * block.keys + c] = -kInfinity;
    }
  }
}

float DropFactor(const AttentionProblem& p, const AttentionBlock& block, int64_t row,
                 int64_t column) {
  const int64_t query = (block.b * p.heads + block.h) * p.queries + block.query + row;
  const int64_t index = query * p.keys + block.key + column;
  return RandomUniform(p.random, static_cast<uint64_t>(index)) >= p.drop ? p.keep_scale : 0;
}

namespace {

// A softmax in the making: what has been seen of each query's scores, and the sum of values so far,
// all relative to the largest score.
struct Progress {
  float max[kMaxQueries];
  float sum[kMaxQueries];
  float values[kHeadTile];
};

// Turns scores into e^(score - max) and scales what came before down to the new maximum.
void AddScores(const AttentionProblem& p, const AttentionBlock& block, float* scores,
               Progress& progress) {
  for (int64_t row = 0; row < block.queries; ++row) {
    float* s = scores + row * block.keys;
    const float before = progress.max[row];
    const float found = Max(s, block.keys);
    const float max = found > before ? found : before;
    for (int64_t c = 0; c < block.keys; ++c) s[c] = Exp(s[c] - max);
    const float sum = Sum(s, block.keys);
    progress.max[row] = max;
    if (block.key == 0) {
      progress.sum[row] = sum;
      continue;
    }
    const float factor = Exp(before - max);
    progress.sum[row] = progress.sum[row] * factor + sum;
    float* values = progress.values + row * p.size;
    for (int64_t d = 0; d < p.size; ++d) values[d] *= factor;
  }
}

void DropProbabilities(const AttentionProblem& p, const AttentionBlock& block, float* scores) {
  if (p.drop == 0) return;
  for (int64_t row = 0; row < block.queries; ++row) {
    for (int64_t c = 0; c < block.keys; ++c) {
      scores[row * block.keys + c] *= DropFactor(p, block, row, c);
    }
  }
}

// Writes the results of a block of queries: out, and the logarithm of the sum of exponentials.
void Finish(const AttentionProblem& p, const AttentionBlock& block, Progress& progress,
            const TensorView& out, const TensorView& log_sums) {
  for (int64_t row = 0; row < block.queries; ++row) {
    const float inverse = 1 / progress.sum[row];
    float* values = progress.values + row * p.size;
    for (int64_t d = 0; d < p.size; ++d) values[d] *= inverse;
    StoreFloat(progress.max[row] + std::log(progress.sum[row]), log_sums,
               block.b * log_sums.strides[0] + block.h * log_sums.strides[1] +
                   (block.query + row) * log_sums.strides[2]);
  }
  CopyMatrix(Dense(progress.values, block.queries, p.size),
             RowsOf(out, block.b, block.h, block.query, block.queries));
}

// Rows of the log-sum-exp beyond the queries: such a query gives no key a probability.
void PadLogSums(const AttentionProblem& p, const TensorView& log_sums) {
  FillTensor(kInfinity, Narrowed(log_sums, 2, p.queries, log_sums.shape[2] - p.queries));
}

// The key of the random numbers stands where PyTorch keeps the state of its generator.
void WriteSeeds(const KernelCall& call) {
  for (size_t i = 2; i < call.out.size(); ++i) FillTensor(0, call.out[i]);
  if (call.out.size() > 2 && NumelOf(call.out[2]) > 0)
    StoreInt(static_cast<int64_t>(call.random), call.out[2], 0);
}

constexpr NamedKernel kRows[] = {
    {"attention", AttentionForward},           {"attention_backward", AttentionBackward},
    {"flash_attention", AttentionForward},     {"flash_attention_backward", AttentionBackward},
    {"flash_attention_cpu", AttentionForward}, {"flash_attention_cpu_backward", AttentionBackward},
    {"efficient_attention", AttentionForward}, {"efficient_attention_backward", AttentionBackward},
};

}  // namespace

void AttentionForward(const KernelCall& call) {
  const TensorView& q = call.in[0];
  const TensorView& k = call.in[1];
  const TensorView& v = call.in[2];
  const AttentionProblem p(q, k, call);
  float q_tile[kHeadTile], k_tile[kHeadTile], v_tile[kHeadTile], scores[kMaxQueries * kMaxKeys];
  Progress progress;
  const auto run = [&](int64_t b, int64_t h, int64_t query) {
    const int64_t group = h / (p.heads / p.groups);
    AttentionBlock block{b, h, query, Min(p.query_block, p.queries - query), 0, 0};
    const Matrix queries = Readable(RowsOf(q, b, h, query, block.queries), q_tile);
    const Matrix sums = Dense(progress.values, block.queries, p.size);
    for (float& max : progress.max) max = -kInfinity;
    const int64_t end = p.KeyEnd(query + block.queries);
    for (block.key = 0; block.key < end; block.key += p.key_block) {
      block.keys = Min(p.key_block, end - block.key);
      const Matrix keys = Readable(RowsOf(k, b, group, block.key, block.keys), k_tile);
      const Matrix values = Readable(RowsOf(v, b, group, block.key, block.keys), v_tile);
      const Matrix products = Dense(scores, block.queries, block.keys);
      MultiplyDirect(p.scale, queries, Transposed(keys), 0, products);
      MaskScores(p, block, scores);
      AddScores(p, block, scores, progress);
      DropProbabilities(p, block, scores);
      MultiplyDirect(1, products, values, block.key > 0 ? 1 : 0, sums);
    }
    Finish(p, block, progress, call.out[0], call.out[1]);
  };
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t query = 0; query < p.queries; query += p.query_block) run(b, h, query);
    }
  }
  PadLogSums(p, call.out[1]);
  WriteSeeds(call);
}

std::span<const NamedKernel> AttentionKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
