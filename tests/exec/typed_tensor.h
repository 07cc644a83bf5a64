// Contiguous tensors of one C++ type for tests of kernels.
#pragma once

#include <bit>
#include <span>
#include <string_view>
#include <vector>

#include "exec/cpu/kernel.h"
#include "exec/random.h"

namespace foreshard::exec {

// fp32 unless told otherwise; T is what the dtype is stored as.
template <typename T = float>
struct TypedTensor {
  explicit TypedTensor(std::vector<int64_t> s, DType t = DType::kFp32)
      : shape(std::move(s)), dtype(t) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    values.resize(n);
  }

  TensorView view() {
    TensorView v;
    v.dtype = dtype;
    v.dims = static_cast<int>(shape.size());
    int64_t stride = 1;
    for (int d = v.dims - 1; d >= 0; --d) {
      v.shape[d] = shape[d];
      v.strides[d] = stride;
      stride *= shape[d];
    }
    v.data = values.data();
    return v;
  }

  std::vector<int64_t> shape;
  DType dtype;
  std::vector<T> values;
};

// Numbers of mean 0 and variance 1.
inline TypedTensor<float> RandomTensor(std::vector<int64_t> shape, uint64_t key) {
  TypedTensor<float> t(std::move(shape));
  for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = RandomNormal(key, i);
  return t;
}

// The same numbers in bf16, cut off.
inline TypedTensor<uint16_t> RandomBf16(std::vector<int64_t> shape, uint64_t key) {
  TypedTensor<uint16_t> t(std::move(shape), DType::kBf16);
  for (size_t i = 0; i < t.values.size(); ++i) {
    const float x = RandomNormal(key, i);
    t.values[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }
  return t;
}

inline void RunKernel(std::string_view name, const std::vector<TensorView>& in,
                      const std::vector<TensorView>& out, const KernelAttributes& attributes = {},
                      uint64_t random = 0) {
  FindCpuKernel(name)({in, out, attributes, random});
}

}  // namespace foreshard::exec
