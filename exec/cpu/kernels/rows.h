// Parts of rows: kernels that need a whole row more than once go through it in chunks.
#pragma once

#include <cstdint>

#include "exec/cpu/kernels/reduce.h"
#include "exec/cpu/kernels/walk.h"

namespace foreshard::exec::KERNEL_ISA {

// Calls visit(start, n) for the chunks of a row.
template <typename Visit>
void ForEachPart(int64_t length, Visit visit) {
  for (int64_t start = 0; start < length; start += kChunk) {
    visit(start, length - start < kChunk ? length - start : kChunk);
  }
}

// A tensor's rows, read a part at a time.
class RowReader {
 public:
  explicit RowReader(const TensorView& t) : t_(t), rows_(t) {}
  const Rows& rows() const { return rows_; }
  // Valid until the next call.
  const float* Read(int64_t row, int64_t start, int64_t n) {
    return ReadFloats(t_, rows_.Part(row, start, n), buffer_);
  }

 private:
  const TensorView& t_;
  const Rows rows_;
  float buffer_[kChunk];
};

// A result's rows, computed a part at a time in place or in a buffer.
class RowWriter {
 public:
  explicit RowWriter(const TensorView& t) : t_(t), rows_(t) {}
  // Calls compute(to), which sets n floats.
  template <typename Compute>
  void Write(int64_t row, int64_t start, int64_t n, Compute compute) {
    const Run run = rows_.Part(row, start, n);
    float* to = Target(t_, run, buffer_);
    compute(to);
    Commit(to, t_, run);
  }

 private:
  const TensorView& t_;
  const Rows rows_;
  float buffer_[kChunk];
};

}  // namespace foreshard::exec::KERNEL_ISA
