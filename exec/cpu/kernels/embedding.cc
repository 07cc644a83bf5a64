#include "exec/cpu/kernel_check.h"
#include "exec/cpu/kernels/copies.h"
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/rows.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// Indices of any number of dimensions as a list.
class Indices {
 public:
  Indices(const TensorView& t, int64_t extent) : t_(WithLast(t)), rows_(t_), extent_(extent) {}
  int64_t count() const { return rows_.count(); }
  int64_t operator[](int64_t i) const {
    const int64_t index = LoadInt(t_, rows_.Start(i));
    CheckIndex("embedding index", index, extent_);
    return index;
  }

 private:
  // With a dimension of 1 appended, so that each index is a row.
  static TensorView WithLast(TensorView t) {
    t.shape[t.dims] = 1;
    t.strides[t.dims] = 1;
    ++t.dims;
    return t;
  }
  const TensorView t_;
  const Rows rows_;
  const int64_t extent_;
};

// weight [V, h], indices -> rows of the weight
void Embedding(const KernelCall& call) {
  const TensorView& weight = call.in[0];
  const TensorView& out = call.out[0];
  const Indices indices(call.in[1], weight.shape[0]);
  const Rows from(weight);
  const Rows to(out);
  for (int64_t i = 0; i < indices.count(); ++i) {
    CopyRun(weight, from.Part(indices[i], 0, from.length()), out, to.Part(i, 0, to.length()));
  }
}

// Adds each gradient to its row of the result, which holds zeros.
void AddRowsInPlace(RowReader& g, const Indices& indices, const TensorView& out) {
  const Rows to(out);
  ForEachPart(to.length(), [&](int64_t start, int64_t n) {
    for (int64_t i = 0; i < indices.count(); ++i) {
      const float* __restrict gradient = g.Read(i, start, n);
      float* __restrict sum = InPlace(out, to.Part(indices[i], start, n));
      for (int64_t j = 0; j < n; ++j) sum[j] += gradient[j];
    }
  });
}

// Part of the result in fp32 on the stack: 512 KiB.
constexpr int64_t kTileRows = 1024;
constexpr int64_t kTileColumns = 128;

// Sums up a part of the result before it is rounded, going through all indices for each.
void AddRowsRounded(RowReader& g, const Indices& indices, const TensorView& out) {
  const Rows to(out);
  float tile[kTileRows * kTileColumns];
  for (int64_t row = 0; row < to.count(); row += kTileRows) {
    const int64_t rows = to.count() - row < kTileRows ? to.count() - row : kTileRows;
    for (int64_t start = 0; start < to.length(); start += kTileColumns) {
      const int64_t n = to.length() - start < kTileColumns ? to.length() - start : kTileColumns;
      for (int64_t j = 0; j < rows * n; ++j) tile[j] = 0;
      for (int64_t i = 0; i < indices.count(); ++i) {
        const int64_t in_tile = indices[i] - row;
        if (in_tile < 0 || in_tile >= rows) continue;
        const float* __restrict gradient = g.Read(i, start, n);
        float* __restrict sum = tile + in_tile * n;
        for (int64_t j = 0; j < n; ++j) sum[j] += gradient[j];
      }
      for (int64_t r = 0; r < rows; ++r) StoreFloats(tile + r * n, out, to.Part(row + r, start, n));
    }
  }
}

// gradient, indices -> gradient of the weight
void EmbeddingBackward(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const Indices indices(call.in[1], out.shape[0]);
  RowReader g(call.in[0]);
  if (InPlace(out, Rows(out).Part(0, 0, out.shape[1])) != nullptr) {
    FillTensor(0, out);
    AddRowsInPlace(g, indices, out);
  } else {
    AddRowsRounded(g, indices, out);
  }
}

constexpr NamedKernel kRows[] = {
    {"embedding", Embedding},
    {"embedding_backward", EmbeddingBackward},
};

}  // namespace

std::span<const NamedKernel> EmbeddingKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
