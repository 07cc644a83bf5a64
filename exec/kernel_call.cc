#include "exec/kernel_call.h"

namespace foreshard::exec {

TensorView ViewOf(const pb::TensorType& type, void* buffer, int64_t offset) {
  TensorView view;
  view.dtype = static_cast<DType>(type.dtype());
  CHECK_LE(type.shape_size(), kMaxDims);
  view.dims = type.shape_size();
  int64_t contiguous = 1;
  for (int d = view.dims - 1; d >= 0; --d) {
    view.shape[d] = type.shape(d);
    view.strides[d] = type.strides_size() > 0 ? type.strides(d) : contiguous;
    contiguous *= type.shape(d);
  }
  view.data = static_cast<char*>(buffer) + offset * SizeOf(view.dtype);
  return view;
}

KernelAttributes AttributesOf(const pb::Kernel& kernel) {
  KernelAttributes a;
  a.scalar = kernel.scalar();
  a.eps = kernel.eps();
  a.dim = kernel.dim();
  a.slice = {kernel.slice().dim(), kernel.slice().start(), kernel.slice().length()};
  a.attention = {kernel.attention().causal(), kernel.attention().scale(),
                 kernel.attention().dropout()};
  return a;
}

}  // namespace foreshard::exec
