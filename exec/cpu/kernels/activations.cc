// Activations and their derivatives, as PyTorch defines them.
#include <cmath>
#include <numbers>

#include "exec/cpu/kernels/elementwise.h"
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/vector_math.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

constexpr float kSqrtHalf = 1 / std::numbers::sqrt2_v<float>;
// sqrt(2 / pi)
constexpr float kTanhScale = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
constexpr float kTanhCubic = 0.044715F;

struct ReluOp {
  static float Of(float x, float) { return x < 0 ? 0 : x; }
};
// `y` is the result of relu.
struct ReluBackwardOp {
  static float Of(float g, float y, float) { return y <= 0 ? 0 : g; }
};

// x times the normal distribution function.
struct GeluOp {
  static float Of(float x, float) { return x * (0.5F * (1.0F + std::erf(x * kSqrtHalf))); }
};
struct GeluBackwardOp {
  static float Of(float g, float x, float) {
    const float below = 0.5F * (1.0F + std::erf(x * kSqrtHalf));
    const float density = Exp(-0.5F * x * x) * (0.5F * kTanhScale);
    return g * (below + x * density);
  }
};

struct GeluTanhOp {
  static float Of(float x, float) {
    const float inner = kTanhScale * (x + kTanhCubic * (x * x * x));
    return 0.5F * x * (1.0F + Tanh(inner));
  }
};
struct GeluTanhBackwardOp {
  static float Of(float g, float x, float) {
    const float inner = kTanhScale * (x + kTanhCubic * (x * x * x));
    const float t = Tanh(inner);
    const float slope = kTanhScale * (1.0F + 3.0F * kTanhCubic * (x * x));
    return g * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope);
  }
};

struct TanhOp {
  static float Of(float x, float) { return Tanh(x); }
};
struct TanhBackwardOp {
  static float Of(float g, float y, float) { return g * (1.0F - y * y); }
};

struct SiluOp {
  static float Of(float x, float) { return x / (1.0F + Exp(-x)); }
};
struct SiluBackwardOp {
  static float Of(float g, float x, float) {
    const float s = Sigmoid(x);
    return g * s * (1.0F + x * (1.0F - s));
  }
};

constexpr NamedKernel kRows[] = {
    {"relu", Unary<ReluOp>},          {"relu_backward", Binary<ReluBackwardOp>},
    {"gelu", Unary<GeluOp>},          {"gelu_backward", Binary<GeluBackwardOp>},
    {"gelu_tanh", Unary<GeluTanhOp>}, {"gelu_tanh_backward", Binary<GeluTanhBackwardOp>},
    {"tanh", Unary<TanhOp>},          {"tanh_backward", Binary<TanhBackwardOp>},
    {"silu", Unary<SiluOp>},          {"silu_backward", Binary<SiluBackwardOp>},
};

}  // namespace

std::span<const NamedKernel> ActivationKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
