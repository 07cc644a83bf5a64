#include "exec/cpu/kernels/elementwise.h"

#include <cmath>
#include <limits>

#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/walk.h"

namespace foreshard::exec::KERNEL_ISA {

void RunElementwise(const KernelCall& call, ChunkFunction function) {
  const TensorView& out = call.out[0];
  const size_t operands = call.in.size();
  const TensorView& a = call.in[0];
  const TensorView& b = call.in[operands - 1];
  const Walk walk(out, {&out, &a, &b}, Walk::Order::kFast);
  const bool in_place = out.data == a.data || out.data == b.data;
  const auto scalar = static_cast<float>(call.attributes.scalar);
  float buffer_a[kChunk], buffer_b[kChunk], buffer_out[kChunk];
  walk.ForEachChunk([&](const Run* runs, int64_t n) {
    const float* in[2] = {ReadFloats(a, runs[1], buffer_a), nullptr};
    if (operands > 1) in[1] = ReadFloats(b, runs[2], buffer_b);
    if (in_place) {
      function(in, buffer_out, n, scalar);
      StoreFloats(buffer_out, out, runs[0]);
    } else {
      float* target = Target(out, runs[0], buffer_out);
      function(in, target, n, scalar);
      Commit(target, out, runs[0]);
    }
  });
}

namespace {

struct AddOp {
  static float Of(float x, float y, float) { return x + y; }
};
struct MulOp {
  static float Of(float x, float y, float) { return x * y; }
};
struct AddScalarOp {
  static float Of(float x, float scalar) { return x + scalar; }
};
struct MulScalarOp {
  static float Of(float x, float scalar) { return x * scalar; }
};
struct DivOp {
  static float Of(float x, float scalar) { return x / scalar; }
};
struct NegOp {
  static float Of(float x, float) { return -x; }
};
struct RsqrtOp {
  static float Of(float x, float) { return 1.0F / std::sqrt(x); }
};
struct CosOp {
  static float Of(float x, float) { return std::cos(x); }
};
struct SinOp {
  static float Of(float x, float) { return std::sin(x); }
};
struct SquareOp {
  static float Of(float x, float) { return x * x; }
};
struct CubeOp {
  static float Of(float x, float) { return x * x * x; }
};
struct IdentityOp {
  static float Of(float x, float) { return x; }
};
struct PowOp {
  static float Of(float x, float scalar) { return std::pow(x, scalar); }
};
struct MaskToBiasOp {
  static float Of(float x, float) {
    return x != 0 ? 0.0F : -std::numeric_limits<float>::infinity();
  }
};

// Positions stay integers.
void AddScalar(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& out = call.out[0];
  if (x.dtype != DType::kInt64 || out.dtype != DType::kInt64) return Unary<AddScalarOp>(call);
  const auto scalar = static_cast<int64_t>(call.attributes.scalar);
  Walk(out, {&out, &x}, Walk::Order::kFast).ForEachChunk([&](const Run* runs, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t value = LoadInt(x, runs[1].offset + i * runs[1].stride);
      StoreInt(value + scalar, out, runs[0].offset + i * runs[0].stride);
    }
  });
}

// Small powers are products, as PyTorch has it; they are what models use.
void Pow(const KernelCall& call) {
  const double exponent = call.attributes.scalar;
  if (exponent == 1) return Unary<IdentityOp>(call);
  if (exponent == 2) return Unary<SquareOp>(call);
  if (exponent == 3) return Unary<CubeOp>(call);
  Unary<PowOp>(call);
}

constexpr NamedKernel kRows[] = {
    {"add", Binary<AddOp>},
    {"add_", Binary<AddOp>},
    {"mul", Binary<MulOp>},
    {"add_scalar", AddScalar},
    {"mul_scalar", Unary<MulScalarOp>},
    {"pow_scalar", Pow},
    {"neg", Unary<NegOp>},
    {"rsqrt", Unary<RsqrtOp>},
    {"cos", Unary<CosOp>},
    {"sin", Unary<SinOp>},
    {"div_expand", Unary<DivOp>},
    {"mask_to_bias", Unary<MaskToBiasOp>},
};

}  // namespace

std::span<const NamedKernel> ElementwiseKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
