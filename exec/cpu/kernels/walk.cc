#include "exec/cpu/kernels/walk.h"

#include <utility>

namespace foreshard::exec::KERNEL_ISA {

int64_t NumelOf(const TensorView& t) {
  int64_t n = 1;
  for (int i = 0; i < t.dims; ++i) n *= t.shape[i];
  return n;
}

Walk::Walk(const TensorView& shape, std::initializer_list<const TensorView*> tensors, Order order) {
  rows_ = NumelOf(shape) == 0 ? 0 : 1;
  int dims = 0;
  for (int d = 0; d < shape.dims; ++d) {
    if (shape.shape[d] == 1) continue;
    shape_[dims] = shape.shape[d];
    int t = 0;
    for (const TensorView* tensor : tensors) {
      const int own = d - (shape.dims - tensor->dims);
      const bool broadcast = own < 0 || tensor->shape[own] == 1;
      strides_[t++][dims] = broadcast ? 0 : tensor->strides[own];
    }
    ++dims;
  }
  count_ = static_cast<int>(tensors.size());
  if (order == Order::kFast) Sort(dims);
  dims = Join(dims);
  for (int t = 0; t < count_; ++t) row_strides_[t] = dims > 0 ? strides_[t][dims - 1] : 1;
  if (dims > 0) length_ = shape_[dims - 1];
  outer_ = dims > 0 ? dims - 1 : 0;
  for (int d = 0; d < outer_; ++d) rows_ *= shape_[d];
}

// Large strides first; where the first tensor does not care, the next decides.
void Walk::Sort(int dims) {
  const auto before = [&](int a, int b) {
    for (int t = 0; t < count_; ++t) {
      if (strides_[t][a] != strides_[t][b]) return strides_[t][a] > strides_[t][b];
    }
    return false;
  };
  for (int i = 1; i < dims; ++i) {
    for (int j = i; j > 0 && before(j, j - 1); --j) {
      std::swap(shape_[j], shape_[j - 1]);
      for (int t = 0; t < count_; ++t) std::swap(strides_[t][j], strides_[t][j - 1]);
    }
  }
}

// Joins each dimension with the one outside it where all tensors allow that.
int Walk::Join(int dims) {
  int kept = 0;
  for (int d = 1; d < dims; ++d) {
    bool joins = true;
    for (int t = 0; t < count_; ++t) joins &= strides_[t][kept] == strides_[t][d] * shape_[d];
    if (joins) {
      shape_[kept] *= shape_[d];
    } else {
      shape_[++kept] = shape_[d];
    }
    for (int t = 0; t < count_; ++t) strides_[t][kept] = strides_[t][d];
  }
  return dims == 0 ? 0 : kept + 1;
}

Rows::Rows(const TensorView& t) : t_(t) {
  const int last = t.dims - 1;
  if (last < 0) return;
  length_ = t.shape[last];
  stride_ = t.strides[last];
  for (int d = last - 1; d >= 0; --d) {
    if (t.shape[d] != 1) {
      if (count_ == 1) {
        distance_ = t.strides[d];
      } else if (t.strides[d] != distance_ * count_) {
        even_ = false;
      }
    }
    count_ *= t.shape[d];
  }
}

int64_t Rows::Start(int64_t row) const {
  if (even_) return row * distance_;
  int64_t offset = 0;
  for (int d = t_.dims - 2; d >= 0; --d) {
    offset += row % t_.shape[d] * t_.strides[d];
    row /= t_.shape[d];
  }
  return offset;
}

}  // namespace foreshard::exec::KERNEL_ISA
