// Matrix products of any dtype and strides, accumulated in fp32 by BLAS.
#pragma once

#include <cstdint>

#include "exec/cpu/kernel.h"

namespace foreshard::exec::KERNEL_ISA {

struct Matrix {
  DType dtype = DType::kFp32;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 0;  // elements
  void* data = nullptr;
};

Matrix Transposed(const Matrix& m);
// Rows [row, row + rows) and the same of columns.
Matrix Block(const Matrix& m, int64_t row, int64_t rows, int64_t column, int64_t columns);
// The last two dimensions of a tensor, from `offset` on.
Matrix LastTwo(const TensorView& t, int64_t offset);
// A row-major matrix of floats.
Matrix Dense(float* data, int64_t rows, int64_t columns);

// True when BLAS can read (or write) the matrix where it lies.
bool IsDirect(const Matrix& m);
// Copies the elements, converting them.
void CopyMatrix(const Matrix& from, const Matrix& to);

// The matrix if it is direct, else a copy of it in `tile`.
Matrix Readable(const Matrix& m, float* tile);

// c = scale * a b + keep * c. REQUIRES: all are direct.
void MultiplyDirect(float scale, const Matrix& a, const Matrix& b, float keep, const Matrix& c);

// c = a b, plus `bias` to every row unless its data is null. Half precision and layouts that BLAS
// does not take pass through tiles on the stack; the result is rounded once.
void Multiply(const Matrix& a, const Matrix& b, const Matrix& bias, const Matrix& c);

}  // namespace foreshard::exec::KERNEL_ISA
