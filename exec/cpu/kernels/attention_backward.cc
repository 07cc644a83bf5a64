// The backward of attention. With P = exp(scale * q k^T - logsumexp), D what dropout multiplies by
// and delta = rowsum(gradient * out):
//   dv = (P D)^T gradient,  dS = P * (D * gradient v^T - delta),  dq = scale * dS k,
//   dk = scale * dS^T q.
// dk and dv are summed over queries and dq over keys, each in a block on the stack. So where the
// keys are more than a block, the scores are computed twice, once for each: the price of needing no
// memory that grows with the sequence.
#include "exec/cpu/kernels/attention.h"
#include "exec/cpu/kernels/convert.h"
#include "exec/cpu/kernels/reduce.h"
#include "exec/cpu/kernels/vector_math.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

class Backward {
 public:
  explicit Backward(const KernelCall& call)
      : g_(call.in[0]),
        q_(call.in[1]),
        k_(call.in[2]),
        v_(call.in[3]),
        out_(call.in[4]),
        log_sums_(call.in[5]),
        p_(q_, k_, call) {}

  const AttentionProblem& problem() const { return p_; }

  bool OneBlockOfKeys() const { return p_.keys <= p_.key_block; }

  // Sets `dq` for a block of queries.
  void QueryGradient(int64_t b, int64_t h, int64_t query, const TensorView& dq) {
    AttentionBlock block{b, h, query, Min(p_.query_block, p_.queries - query), 0, 0};
    LoadQueries(block);
    const Matrix sum = Zeroed(first_sum_, block.queries);
    const int64_t end = p_.KeyEnd(query + block.queries);
    for (block.key = 0; block.key < end; block.key += p_.key_block) {
      block.keys = Min(p_.key_block, end - block.key);
      LoadKeys(block);
      ComputeScores(block);
      MultiplyDirect(p_.scale, Dense(slopes_, block.queries, block.keys), keys_, 1, sum);
    }
    CopyMatrix(sum, RowsOf(dq, b, h, query, block.queries));
  }

  // Sets `dk` and `dv` for a block of keys, from all query heads of the group; if there is no other
  // block of keys, `dq` of these heads as well.
  void KeyGradient(int64_t b, int64_t group, int64_t key, const TensorView& dq,
                   const TensorView& dk, const TensorView& dv) {
    const int64_t share = p_.heads / p_.groups;
    const int64_t keys = Min(p_.key_block, p_.keys - key);
    AttentionBlock block{b, group * share, 0, 0, key, keys};
    Zeroed(first_sum_, keys);
    Zeroed(second_sum_, keys);
    // Queries before the first key do not see the block.
    const int64_t first = p_.causal ? key / p_.query_block * p_.query_block : 0;
    for (; block.h < (group + 1) * share; ++block.h) {
      for (block.query = first; block.query < p_.queries; block.query += p_.query_block) {
        block.queries = Min(p_.query_block, p_.queries - block.query);
        block.keys = Min(keys, p_.KeyEnd(block.query + block.queries) - key);
        if (block.keys <= 0) continue;
        AddKeyGradient(block);
        if (OneBlockOfKeys()) WriteQueryGradient(block, dq);
      }
    }
    CopyMatrix(Dense(first_sum_, keys, p_.size), RowsOf(dk, b, group, key, keys));
    CopyMatrix(Dense(second_sum_, keys, p_.size), RowsOf(dv, b, group, key, keys));
  }

 private:
  void AddKeyGradient(const AttentionBlock& block) {
    LoadKeys(block);
    LoadQueries(block);
    ComputeScores(block);
    const Matrix slopes = Dense(slopes_, block.queries, block.keys);
    const Matrix probabilities = Dense(probabilities_, block.queries, block.keys);
    MultiplyDirect(p_.scale, Transposed(slopes), queries_, 1,
                   Dense(first_sum_, block.keys, p_.size));
    MultiplyDirect(1, Transposed(probabilities), gradients_, 1,
                   Dense(second_sum_, block.keys, p_.size));
  }

  // From the scores computed last, which are with all keys that the queries see.
  void WriteQueryGradient(const AttentionBlock& block, const TensorView& dq) {
    const Matrix target = RowsOf(dq, block.b, block.h, block.query, block.queries);
    const Matrix slopes = Dense(slopes_, block.queries, block.keys);
    const Matrix sum = IsDirect(target) ? target : Dense(query_tile_, block.queries, p_.size);
    MultiplyDirect(p_.scale, slopes, keys_, 0, sum);
    if (!IsDirect(target)) CopyMatrix(sum, target);
  }

  Matrix Zeroed(float* tile, int64_t rows) const {
    for (int64_t i = 0; i < rows * p_.size; ++i) tile[i] = 0;
    return Dense(tile, rows, p_.size);
  }

  void LoadKeys(const AttentionBlock& block) {
    const int64_t group = block.h / (p_.heads / p_.groups);
    keys_ = Readable(RowsOf(k_, block.b, group, block.key, block.keys), key_tile_);
    values_ = Readable(RowsOf(v_, block.b, group, block.key, block.keys), value_tile_);
  }

  void LoadQueries(const AttentionBlock& block) {
    queries_ = Readable(RowsOf(q_, block.b, block.h, block.query, block.queries), query_tile_);
    gradients_ = Readable(RowsOf(g_, block.b, block.h, block.query, block.queries), gradient_tile_);
    for (int64_t row = 0; row < block.queries; ++row) {
      const int64_t query = block.query + row;
      log_sum_[row] =
          LoadFloat(log_sums_, block.b * log_sums_.strides[0] + block.h * log_sums_.strides[1] +
                                   query * log_sums_.strides[2]);
      delta_[row] = RowProduct(block, query);
    }
  }

  // gradient . out for one query
  float RowProduct(const AttentionBlock& block, int64_t query) {
    double sum = 0;
    for (int64_t d = 0; d < p_.size; d += kChunk) {
      const int64_t n = Min(kChunk, p_.size - d);
      const auto run = [&](const TensorView& t) {
        return Run{block.b * t.strides[0] + block.h * t.strides[1] + query * t.strides[2] +
                       d * t.strides[3],
                   t.strides[3], n};
      };
      const float* g = ReadFloats(g_, run(g_), first_row_);
      sum += static_cast<double>(Dot(g, ReadFloats(out_, run(out_), second_row_), n));
    }
    return static_cast<float>(sum);
  }

  // Sets probabilities_ to P D and slopes_ to dS for the loaded queries and keys.
  void ComputeScores(const AttentionBlock& block) {
    MultiplyDirect(p_.scale, queries_, Transposed(keys_), 0,
                   Dense(probabilities_, block.queries, block.keys));
    MultiplyDirect(1, gradients_, Transposed(values_), 0,
                   Dense(slopes_, block.queries, block.keys));
    MaskScores(p_, block, probabilities_);
    for (int64_t row = 0; row < block.queries; ++row) {
      float* __restrict p = probabilities_ + row * block.keys;
      float* __restrict s = slopes_ + row * block.keys;
      const float log_sum = log_sum_[row];
      const float delta = delta_[row];
      for (int64_t c = 0; c < block.keys; ++c) p[c] = Exp(p[c] - log_sum);
      if (p_.drop == 0) {
        for (int64_t c = 0; c < block.keys; ++c) s[c] = p[c] * (s[c] - delta);
        continue;
      }
      for (int64_t c = 0; c < block.keys; ++c) {
        const float factor = DropFactor(p_, block, row, c);
        s[c] = p[c] * (s[c] * factor - delta);
        p[c] *= factor;
      }
    }
  }

  const TensorView& g_;
  const TensorView& q_;
  const TensorView& k_;
  const TensorView& v_;
  const TensorView& out_;
  const TensorView& log_sums_;
  const AttentionProblem p_;
  Matrix queries_, gradients_, keys_, values_;  // of the block, where they lie or in the tiles
  float query_tile_[kHeadTile], gradient_tile_[kHeadTile];
  float key_tile_[kHeadTile], value_tile_[kHeadTile];
  float first_sum_[kHeadTile], second_sum_[kHeadTile];
  float probabilities_[kMaxQueries * kMaxKeys], slopes_[kMaxQueries * kMaxKeys];
  float first_row_[kChunk], second_row_[kChunk];
  float log_sum_[kMaxQueries], delta_[kMaxQueries];
};

static_assert(sizeof(Backward) < kMaxKernelStack * 9 / 10);

}  // namespace

void AttentionBackward(const KernelCall& call) {
  Backward backward(call);
  const AttentionProblem& p = backward.problem();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t group = 0; group < p.groups; ++group) {
      for (int64_t key = 0; key < p.keys; key += p.key_block) {
        backward.KeyGradient(b, group, key, call.out[0], call.out[1], call.out[2]);
      }
    }
    for (int64_t h = 0; !backward.OneBlockOfKeys() && h < p.heads; ++h) {
      for (int64_t query = 0; query < p.queries; query += p.query_block) {
        backward.QueryGradient(b, h, query, call.out[0]);
      }
    }
  }
}

}  // namespace foreshard::exec::KERNEL_ISA
