#include "exec/cpu/kernels/gemm.h"

#include <cblas.h>

#include "exec/cpu/kernels/copies.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// Three tiles of fp32: 640 KiB of stack.
constexpr int64_t kTileSide = 256;   // rows and columns of a tile of the result
constexpr int64_t kTileDepth = 192;  // of the dimension that is summed over

int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// A matrix as cblas is told of it.
struct Operand {
  CBLAS_TRANSPOSE transpose;
  blasint leading;
  float* data;
};

Operand OperandOf(const Matrix& m) {
  const bool row_major = m.column_stride == 1 || m.columns == 1;
  const int64_t stride = row_major ? m.row_stride : m.column_stride;
  const int64_t extent = row_major ? m.columns : m.rows;
  const int64_t vectors = row_major ? m.rows : m.columns;
  // With one row its stride means nothing, and BLAS wants a sensible one.
  const int64_t leading = vectors == 1 && stride < extent ? extent : stride;
  return {row_major ? CblasNoTrans : CblasTrans, static_cast<blasint>(leading),
          static_cast<float*>(m.data)};
}

}  // namespace

Matrix Transposed(const Matrix& m) {
  return {m.dtype, m.columns, m.rows, m.column_stride, m.row_stride, m.data};
}

Matrix Block(const Matrix& m, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const int64_t offset = row * m.row_stride + column * m.column_stride;
  return {m.dtype,         rows,
          columns,         m.row_stride,
          m.column_stride, static_cast<char*>(m.data) + offset * SizeOf(m.dtype)};
}

Matrix LastTwo(const TensorView& t, int64_t offset) {
  const int r = t.dims - 2;
  const int c = t.dims - 1;
  return {t.dtype,      t.shape[r],   t.shape[c],
          t.strides[r], t.strides[c], static_cast<char*>(t.data) + offset * SizeOf(t.dtype)};
}

Matrix Dense(float* data, int64_t rows, int64_t columns) {
  return {DType::kFp32, rows, columns, columns, 1, data};
}

bool IsDirect(const Matrix& m) {
  if (m.dtype != DType::kFp32) return false;
  const bool by_rows =
      (m.column_stride == 1 || m.columns == 1) && (m.row_stride >= m.columns || m.rows == 1);
  const bool by_columns =
      (m.row_stride == 1 || m.rows == 1) && (m.column_stride >= m.rows || m.columns == 1);
  return by_rows || by_columns;
}

void CopyMatrix(const Matrix& from, const Matrix& to) {
  const auto view = [](const Matrix& m) {
    TensorView t;
    t.dtype = m.dtype;
    t.dims = 2;
    t.shape = {m.rows, m.columns};
    t.strides = {m.row_stride, m.column_stride};
    t.data = m.data;
    return t;
  };
  CopyTensor(view(from), view(to));
}

Matrix Readable(const Matrix& m, float* tile) {
  if (IsDirect(m)) return m;
  const Matrix copy = Dense(tile, m.rows, m.columns);
  CopyMatrix(m, copy);
  return copy;
}

void MultiplyDirect(float scale, const Matrix& a, const Matrix& b, float keep, const Matrix& c) {
  const Operand target = OperandOf(c);
  if (target.transpose == CblasTrans) {
    return MultiplyDirect(scale, Transposed(b), Transposed(a), keep, Transposed(c));
  }
  const Operand left = OperandOf(a);
  const Operand right = OperandOf(b);
  cblas_sgemm(CblasRowMajor, left.transpose, right.transpose, static_cast<blasint>(c.rows),
              static_cast<blasint>(c.columns), static_cast<blasint>(a.columns), scale, left.data,
              left.leading, right.data, right.leading, keep, target.data, target.leading);
}

void Multiply(const Matrix& a, const Matrix& b, const Matrix& bias, const Matrix& c) {
  if (c.rows == 0 || c.columns == 0) return;
  const bool biased = bias.data != nullptr;
  if (IsDirect(a) && IsDirect(b) && IsDirect(c) && a.columns > 0) {
    if (biased) CopyMatrix(bias, c);
    return MultiplyDirect(1, a, b, biased ? 1 : 0, c);
  }
  float tile_a[kTileSide * kTileDepth], tile_b[kTileDepth * kTileSide];
  float tile_c[kTileSide * kTileSide];
  for (int64_t i = 0; i < c.rows; i += kTileSide) {
    const int64_t rows = Min(kTileSide, c.rows - i);
    for (int64_t j = 0; j < c.columns; j += kTileSide) {
      const int64_t columns = Min(kTileSide, c.columns - j);
      const Matrix sum = Dense(tile_c, rows, columns);
      if (biased) CopyMatrix(Block(bias, 0, rows, j, columns), sum);
      if (!biased && a.columns == 0) {
        for (int64_t n = 0; n < rows * columns; ++n) tile_c[n] = 0;
      }
      for (int64_t k = 0; k < a.columns; k += kTileDepth) {
        const int64_t depth = Min(kTileDepth, a.columns - k);
        MultiplyDirect(1, Readable(Block(a, i, rows, k, depth), tile_a),
                       Readable(Block(b, k, depth, j, columns), tile_b), biased || k > 0 ? 1 : 0,
                       sum);
      }
      CopyMatrix(sum, Block(c, i, rows, j, columns));
    }
  }
}

}  // namespace foreshard::exec::KERNEL_ISA
