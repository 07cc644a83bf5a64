// Dropout. Element i in row-major order is kept if RandomUniform(key, i) >= p.
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/walk.h"
#include "exec/random.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

struct Probability {
  explicit Probability(double p)
      : drop(static_cast<float>(p)), scale(p < 1 ? static_cast<float>(1 / (1 - p)) : 0) {}
  float drop;
  float scale;  // of what is kept
};

bool Keeps(const KernelCall& call, const Probability& p, int64_t index) {
  return RandomUniform(call.random, static_cast<uint64_t>(index)) >= p.drop;
}

// x -> y, mask
void Dropout(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& y = call.out[0];
  const TensorView& mask = call.out[1];
  const Probability p(call.attributes.scalar);
  float buffer_x[kChunk], scaled[kChunk], kept[kChunk];
  int64_t index = 0;
  Walk(y, {&y, &mask, &x}, Walk::Order::kRowMajor).ForEachChunk([&](const Run* runs, int64_t n) {
    const float* values = ReadFloats(x, runs[2], buffer_x);
    for (int64_t i = 0; i < n; ++i) {
      const bool keep = Keeps(call, p, index++);
      kept[i] = keep ? 1 : 0;
      scaled[i] = keep ? values[i] * p.scale : 0;
    }
    StoreFloats(scaled, y, runs[0]);
    StoreFloats(kept, mask, runs[1]);
  });
}

// gradient, mask -> gradient of x
void DropoutBackward(const KernelCall& call) {
  const TensorView& g = call.in[0];
  const TensorView& mask = call.in[1];
  const TensorView& out = call.out[0];
  const Probability p(call.attributes.scalar);
  float buffer_g[kChunk], buffer_mask[kChunk], result[kChunk];
  Walk(out, {&out, &g, &mask}, Walk::Order::kFast).ForEachChunk([&](const Run* runs, int64_t n) {
    const float* values = ReadFloats(g, runs[1], buffer_g);
    const float* kept = ReadFloats(mask, runs[2], buffer_mask);
    for (int64_t i = 0; i < n; ++i) result[i] = kept[i] != 0 ? values[i] * p.scale : 0;
    StoreFloats(result, out, runs[0]);
  });
}

// The mask that a product applies: 0 or 1 / (1 - p).
void DropoutMask(const KernelCall& call) {
  const TensorView& mask = call.out[0];
  const Probability p(call.attributes.scalar);
  float values[kChunk];
  int64_t index = 0;
  Walk(mask, {&mask}, Walk::Order::kRowMajor).ForEachChunk([&](const Run* runs, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[i] = Keeps(call, p, index++) ? p.scale : 0;
    StoreFloats(values, mask, runs[0]);
  });
}

constexpr NamedKernel kRows[] = {
    {"dropout", Dropout},
    {"dropout_backward", DropoutBackward},
    {"dropout_mask", DropoutMask},
};

}  // namespace

std::span<const NamedKernel> DropoutKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
