// Loops over tensors of any strides: neighbouring dimensions that lie alike in all of them are
// joined, so that a loop over contiguous tensors is one long row.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "exec/cpu/kernel.h"
#include "exec/cpu/kernels/convert.h"

namespace foreshard::exec::KERNEL_ISA {

// Elements of a tensor.
int64_t NumelOf(const TensorView& t);

// Visits the elements of several tensors together, a row at a time. Each broadcasts to `shape`.
class Walk {
 public:
  static constexpr int kMaxTensors = 4;
  enum class Order {
    kFast,     // as the first tensor lies in memory
    kRowMajor  // the last dimension fastest, whatever the strides
  };

  Walk(const TensorView& shape, std::initializer_list<const TensorView*> tensors, Order order);

  int64_t length() const { return length_; }  // elements of a row
  int64_t stride(int tensor) const { return row_strides_[tensor]; }

  // Calls visit(offsets) for each row, with the offset in elements of its start in each tensor.
  template <typename Visit>
  void ForEachRow(Visit visit) const {
    int64_t offsets[kMaxTensors] = {};
    int64_t index[kMaxDims] = {};
    for (int64_t row = 0; row < rows_; ++row) {
      visit(static_cast<const int64_t*>(offsets));
      for (int d = outer_ - 1; d >= 0; --d) {
        if (++index[d] < shape_[d]) {
          for (int t = 0; t < count_; ++t) offsets[t] += strides_[t][d];
          break;
        }
        for (int t = 0; t < count_; ++t) offsets[t] -= (shape_[d] - 1) * strides_[t][d];
        index[d] = 0;
      }
    }
  }

  // Calls visit(runs, n) for parts of rows of kChunk elements at most.
  template <typename Visit>
  void ForEachChunk(Visit visit) const {
    ForEachRow([&](const int64_t* offsets) {
      Run runs[kMaxTensors];
      for (int64_t i = 0; i < length_; i += kChunk) {
        const int64_t n = length_ - i < kChunk ? length_ - i : kChunk;
        for (int t = 0; t < count_; ++t) {
          runs[t] = {offsets[t] + i * row_strides_[t], row_strides_[t], n};
        }
        visit(static_cast<const Run*>(runs), n);
      }
    });
  }

 private:
  void Sort(int dims);
  int Join(int dims);

  int count_ = 0;
  int outer_ = 0;  // dimensions outside the row
  int64_t rows_ = 0;
  int64_t length_ = 1;
  int64_t shape_[kMaxDims] = {};
  int64_t strides_[kMaxTensors][kMaxDims] = {};
  int64_t row_strides_[kMaxTensors] = {};
};

// The vectors along the last dimension of a tensor, in row-major order.
class Rows {
 public:
  // A number is a row of one element.
  explicit Rows(const TensorView& t);
  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  // Elements [start, start + n) of a row.
  Run Part(int64_t row, int64_t start, int64_t n) const {
    return {Start(row) + start * stride_, stride_, n};
  }
  // Offset of a row's first element.
  int64_t Start(int64_t row) const;

 private:
  const TensorView& t_;
  int64_t count_ = 1;
  int64_t length_ = 1;
  int64_t stride_ = 1;
  bool even_ = true;  // rows lie at equal distances
  int64_t distance_ = 0;
};

}  // namespace foreshard::exec::KERNEL_ISA
