// Casts, copies and fills.
#include "exec/cpu/kernels/copies.h"

#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/walk.h"

namespace foreshard::exec::KERNEL_ISA {

void CopyTensor(const TensorView& from, const TensorView& to) {
  const Walk walk(to, {&to, &from}, Walk::Order::kFast);
  walk.ForEachRow([&](const int64_t* offsets) {
    CopyRun(from, {offsets[1], walk.stride(1), walk.length()}, to,
            {offsets[0], walk.stride(0), walk.length()});
  });
}

void FillTensor(double value, const TensorView& to) {
  const Walk walk(to, {&to}, Walk::Order::kFast);
  walk.ForEachRow([&](const int64_t* offsets) {
    FillRun(value, to, {offsets[0], walk.stride(0), walk.length()});
  });
}

TensorView Narrowed(TensorView t, int dim, int64_t start, int64_t length) {
  t.shape[dim] = length;
  t.data = static_cast<char*>(t.data) + start * t.strides[dim] * SizeOf(t.dtype);
  return t;
}

namespace {

void Copy(const KernelCall& call) { CopyTensor(call.in[0], call.out[0]); }

// Joins the operands along the last dimension.
void Cat(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const int last = out.dims - 1;
  int64_t start = 0;
  for (const TensorView& part : call.in) {
    const int64_t length = part.shape[part.dims - 1];
    CopyTensor(part, Narrowed(out, last, start, length));
    start += length;
  }
}

// The operand, and behind it in the last dimension a number.
void PadLast(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& out = call.out[0];
  const int last = out.dims - 1;
  CopyTensor(x, Narrowed(out, last, 0, x.shape[last]));
  FillTensor(call.attributes.scalar,
             Narrowed(out, last, x.shape[last], out.shape[last] - x.shape[last]));
}

// Zeros with the gradient in the place of the slice.
void SliceBackward(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const auto& slice = call.attributes.slice;
  const int dim = static_cast<int>(slice.dim);
  const int64_t end = slice.start + slice.length;
  FillTensor(0, Narrowed(out, dim, 0, slice.start));
  CopyTensor(call.in[0], Narrowed(out, dim, slice.start, slice.length));
  FillTensor(0, Narrowed(out, dim, end, out.shape[dim] - end));
}

// Of each matrix in the last two dimensions, what is on and below the diagonal.
void Tril(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& out = call.out[0];
  const Rows from(x);
  const Rows to(out);
  const int64_t height = out.dims > 1 ? out.shape[out.dims - 2] : 1;
  for (int64_t row = 0; row < to.count(); ++row) {
    const int64_t below = row % height + 1;
    const int64_t kept = below < to.length() ? below : to.length();
    CopyRun(x, from.Part(row, 0, kept), out, to.Part(row, 0, kept));
    FillRun(0, out, to.Part(row, kept, to.length() - kept));
  }
}

void Arange(const KernelCall& call) {
  const TensorView& out = call.out[0];
  int64_t index = 0;
  Walk(out, {&out}, Walk::Order::kRowMajor).ForEachChunk([&](const Run* runs, int64_t n) {
    for (int64_t i = 0; i < n; ++i) StoreInt(index++, out, runs[0].offset + i * runs[0].stride);
  });
}

void Zeros(const KernelCall& call) { FillTensor(0, call.out[0]); }
void Ones(const KernelCall& call) { FillTensor(1, call.out[0]); }

constexpr NamedKernel kRows[] = {
    {"tril", Tril},      {"cast", Copy},        {"copy", Copy},
    {"cat2", Cat},       {"cat3", Cat},         {"slice_backward", SliceBackward},
    {"arange", Arange},  {"zeros", Zeros},      {"ones", Ones},
    {"ones_like", Ones}, {"pad_last", PadLast},
};

}  // namespace

std::span<const NamedKernel> CopyKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
