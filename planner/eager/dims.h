// A short list of tensor dimensions, held inline so that shape arithmetic never allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "proto/base/check.h"

namespace foreshard {

class Dims {
 public:
  static constexpr int kMax = 6;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values) {
    for (int64_t v : values) push_back(v);
  }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  int64_t back() const { return values_[size_ - 1]; }
  int64_t& back() { return values_[size_ - 1]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }

  void push_back(int64_t v) {
    CHECK_LT(size_, kMax);
    values_[size_++] = v;
  }

  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i) {
      if (a.values_[i] != b.values_[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMax> values_{};
  int size_ = 0;
};

// Product of the dimensions; 1 for none.
inline int64_t Numel(const Dims& d) {
  int64_t n = 1;
  for (int64_t v : d) n *= v;
  return n;
}

// The next multiple of `multiple`.
inline int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Row-major strides in elements.
Dims ContiguousStrides(const Dims& shape);

// True when `strides` visit the elements of `shape` row by row (dimensions of size 1 do not
// matter).
bool IsContiguous(const Dims& shape, const Dims& strides);

// Strides with which a tensor of `shape` and `strides` can be seen as `to` without a copy, as
// PyTorch's view() decides it. Returns false where only a copy will do. REQUIRES: equal numel.
bool ViewStrides(const Dims& shape, const Dims& strides, const Dims& to, Dims* result);

// Strides that PyTorch gives the result of an elementwise operator: the order of dimensions of
// `like`, densely packed.
Dims StridesLike(const Dims& shape, const Dims& like);

}  // namespace foreshard
