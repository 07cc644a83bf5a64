#include "exec/convert.h"

#include <cstring>

#include "exec/cpu/kernel.h"

namespace foreshard::exec {
namespace {

TensorView Vector(const void* data, DType dtype, int64_t numel) {
  TensorView view;
  view.dtype = dtype;
  view.dims = 1;
  view.shape[0] = numel;
  view.strides[0] = 1;
  view.data = const_cast<void*>(data);
  return view;
}

}  // namespace

void ConvertElements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t numel) {
  if (numel == 0) return;
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(numel * SizeOf(to_dtype)));
    return;
  }
  static const CpuKernel kCast = FindCpuKernel("cast");
  const TensorView in = Vector(from, from_dtype, numel);
  const TensorView out = Vector(to, to_dtype, numel);
  kCast({{&in, 1}, {&out, 1}, {}, 0});
}

}  // namespace foreshard::exec
