#include "exec/cpu/kernels/gemm.h"
#include "exec/cpu/kernels/groups.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

void Mm(const KernelCall& call) {
  Multiply(LastTwo(call.in[0], 0), LastTwo(call.in[1], 0), Matrix(), LastTwo(call.out[0], 0));
}

void Addmm(const KernelCall& call) {
  const TensorView& bias = call.in[0];
  const TensorView& out = call.out[0];
  // The same row for all rows of the result.
  const Matrix rows = {bias.dtype, out.shape[0], out.shape[1], 0, bias.strides[0], bias.data};
  Multiply(LastTwo(call.in[1], 0), LastTwo(call.in[2], 0), rows, LastTwo(out, 0));
}

void Bmm(const KernelCall& call) {
  const TensorView& a = call.in[0];
  const TensorView& b = call.in[1];
  const TensorView& out = call.out[0];
  for (int64_t i = 0; i < out.shape[0]; ++i) {
    Multiply(LastTwo(a, i * a.strides[0]), LastTwo(b, i * b.strides[0]), Matrix(),
             LastTwo(out, i * out.strides[0]));
  }
}

constexpr NamedKernel kRows[] = {{"mm", Mm}, {"addmm", Addmm}, {"bmm", Bmm}};

}  // namespace

std::span<const NamedKernel> MatmulKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
