// Rotary positions: x * cos + rotate_half(x) * sin with rotate_half(x) = (-second half, first
// half), and its transpose.
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/walk.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// A tensor with the last dimension halved: its two halves are one and the same number of elements
// apart.
struct Halves {
  explicit Halves(const TensorView& t) : view(t), distance(t.shape[t.dims - 1] / 2) {
    distance *= t.strides[t.dims - 1];
    view.shape[t.dims - 1] /= 2;
  }
  Run Second(Run first) const { return {first.offset + distance, first.stride, first.n}; }

  TensorView view;
  int64_t distance;
};

// A table [1, T, D] or [B, T, D] for inputs [B, H, T, D].
TensorView WithHeads(TensorView table) {
  table.dims = 4;
  table.shape = {table.shape[0], 1, table.shape[1], table.shape[2]};
  table.strides = {table.strides[0], 0, table.strides[1], table.strides[2]};
  return table;
}

template <typename Turn>
void RunRope(const KernelCall& call, Turn turn) {
  const Halves x(call.in[0]);
  const Halves cos(WithHeads(call.in[1]));
  const Halves sin(WithHeads(call.in[2]));
  const Halves out(call.out[0]);
  float buffers[6][kChunk], first[kChunk], second[kChunk];
  const Walk walk(out.view, {&out.view, &x.view, &cos.view, &sin.view}, Walk::Order::kFast);
  walk.ForEachChunk([&](const Run* runs, int64_t n) {
    const float* x1 = ReadFloats(x.view, runs[1], buffers[0]);
    const float* x2 = ReadFloats(x.view, x.Second(runs[1]), buffers[1]);
    const float* cos1 = ReadFloats(cos.view, runs[2], buffers[2]);
    const float* cos2 = ReadFloats(cos.view, cos.Second(runs[2]), buffers[3]);
    const float* sin1 = ReadFloats(sin.view, runs[3], buffers[4]);
    const float* sin2 = ReadFloats(sin.view, sin.Second(runs[3]), buffers[5]);
    for (int64_t i = 0; i < n; ++i) {
      turn(x1[i], x2[i], cos1[i], cos2[i], sin1[i], sin2[i], first[i], second[i]);
    }
    StoreFloats(first, out.view, runs[0]);
    StoreFloats(second, out.view, out.Second(runs[0]));
  });
}

void Rope(const KernelCall& call) {
  RunRope(call, [](float x1, float x2, float cos1, float cos2, float sin1, float sin2, float& y1,
                   float& y2) {
    y1 = x1 * cos1 - x2 * sin1;
    y2 = x2 * cos2 + x1 * sin2;
  });
}

void RopeBackward(const KernelCall& call) {
  RunRope(call, [](float g1, float g2, float cos1, float cos2, float sin1, float sin2, float& d1,
                   float& d2) {
    d1 = g1 * cos1 + g2 * sin2;
    d2 = g2 * cos2 - g1 * sin1;
  });
}

constexpr NamedKernel kRows[] = {{"rope", Rope}, {"rope_backward", RopeBackward}};

}  // namespace

std::span<const NamedKernel> RopeKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
