// Elementwise operators and reductions, with the derivative formulas of PyTorch's autograd: which
// tensors a formula saves, which temporaries it makes and in which order.
#include "planner/eager/ops.h"

namespace foreshard::ops {
namespace {

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kFp32 || b == DType::kFp32) return DType::kFp32;
  return DType::kFp32;  // bf16 with fp16
}

Dims BroadcastShape(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims out = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    if (out[i + shift] == 1) out[i + shift] = shorter[i];
  }
  return out;
}

// The result of an elementwise operator keeps the layout of the first operand that is not
// broadcast.
Tensor Binary(Eager& e, const char* kernel, const Tensor& a, const Tensor& b) {
  const Dims shape = BroadcastShape(a.shape(), b.shape());
  Dims strides;
  if (a.shape() == shape) {
    strides = StridesLike(shape, a->strides);
  } else if (b.shape() == shape) {
    strides = StridesLike(shape, b->strides);
  }
  Tensor out = e.Empty(Promote(a.dtype(), b.dtype()), shape, strides);
  e.Launch(kernel, {&a, &b}, {&out});
  return out;
}

Tensor Like(Eager& e, const Tensor& x) {
  return e.Empty(x.dtype(), x.shape(), StridesLike(x.shape(), x->strides));
}

Tensor Scalar(Eager& e, const char* kernel, const Tensor& x, double value) {
  Tensor out = Like(e, x);
  e.Launch(kernel, {&x}, {&out}, ScalarAttr{value});
  return out;
}

void AddBackward(Eager&, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    if (node.NeedsGrad(static_cast<int>(i))) out[i] = in[0];
  }
}

// saved[0] = a if b needs a gradient, saved[1] = b if a does. The second gradient comes first.
void MulBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  if (node.NeedsGrad(1)) out[1] = Binary(e, "mul", in[0], node.saved[0]);
  if (node.NeedsGrad(0)) out[0] = Binary(e, "mul", in[0], node.saved[1]);
}

void MulScalarBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  out[0] = Scalar(e, "mul_scalar", in[0], node.scalar);
}

void NegBackward(Eager& e, Node&, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = Like(e, in[0]);
  e.Launch("neg", {&in[0]}, {&g});
  out[0] = std::move(g);
}

// grad * (n * x^(n-1)): the power and its multiple live until the product is there.
void PowBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor power = Scalar(e, "pow_scalar", node.saved[0], node.scalar - 1);
  Tensor multiple = Scalar(e, "mul_scalar", power, node.scalar);
  out[0] = Binary(e, "mul", in[0], multiple);
}

// -0.5 * grad * result^3
void RsqrtBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor cube = Scalar(e, "pow_scalar", node.saved[0], 3);
  Tensor scaled = Scalar(e, "mul_scalar", in[0], -0.5);
  out[0] = Binary(e, "mul", scaled, cube);
}

void CastBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  out[0] = CastGradient(e, in[0], node.edges[0].dtype);
}

void ActivationBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out,
                        const char* kernel) {
  Tensor g = Like(e, in[0]);
  e.Launch(kernel, {&in[0], &node.saved[0]}, {&g});
  out[0] = std::move(g);
}
void ReluBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  ActivationBackward(e, node, in, out, "relu_backward");
}
void GeluBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  ActivationBackward(e, node, in, out, "gelu_backward");
}
void SiluBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  ActivationBackward(e, node, in, out, "silu_backward");
}

void GeluTanhBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  ActivationBackward(e, node, in, out, "gelu_tanh_backward");
}
void TanhBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  ActivationBackward(e, node, in, out, "tanh_backward");
}

// The gradient of a mean is spread over the dimension and divided by its length.
void MeanBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const Dims& shape = node.edges[0].shape;
  Tensor g = e.Empty(in[0].dtype(), shape);
  e.Launch("div_expand", {&in[0]}, {&g}, ScalarAttr{static_cast<double>(shape.back())});
  out[0] = std::move(g);
}

// The gradient of a sum is the same number everywhere: a view with strides of zero.
void SumBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Dims zero = node.edges[0].shape;
  for (int i = 0; i < zero.size(); ++i) zero[i] = 0;
  out[0] = e.View(in[0], node.edges[0].shape, zero, 0);
}

void CatBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  int64_t start = 0;
  for (int i = 0; i < 2; ++i) {
    Dims shape = node.edges[i].shape;
    if (node.NeedsGrad(i)) {
      out[i] = e.View(in[0], shape, in[0]->strides, in[0]->offset + start * in[0]->strides.back());
    }
    start += shape.back();
  }
}

Tensor Activation(Eager& e, const char* kernel, BackwardFunction backward, bool saves_result,
                  const Tensor& x) {
  Tensor out = Like(e, x);
  e.Launch(kernel, {&x}, {&out});
  if (Node* node = e.Record(backward, {&x}, {&out})) e.Save(*node, {saves_result ? out : x});
  return out;
}

}  // namespace

Tensor Add(Eager& e, const Tensor& a, const Tensor& b) {
  Tensor out = Binary(e, "add", a, b);
  e.Record(AddBackward, {&a, &b}, {&out});
  return out;
}

Tensor Mul(Eager& e, const Tensor& a, const Tensor& b) {
  Tensor out = Binary(e, "mul", a, b);
  if (Node* node = e.Record(MulBackward, {&a, &b}, {&out})) {
    e.Save(*node, {b->requires_grad ? a : Tensor(), a->requires_grad ? b : Tensor()});
  }
  return out;
}

Tensor AddScalar(Eager& e, const Tensor& x, double value) {
  Tensor out = Scalar(e, "add_scalar", x, value);
  e.Record(AddBackward, {&x}, {&out});
  return out;
}

void AddScalarInPlace(Eager& e, const Tensor& x, double value) {
  e.Launch("add_scalar", {&x}, {&x}, ScalarAttr{value});
}

Tensor MulScalar(Eager& e, const Tensor& x, double value) {
  Tensor out = Scalar(e, "mul_scalar", x, value);
  if (Node* node = e.Record(MulScalarBackward, {&x}, {&out})) node->scalar = value;
  return out;
}

Tensor Neg(Eager& e, const Tensor& x) {
  Tensor out = Like(e, x);
  e.Launch("neg", {&x}, {&out});
  e.Record(NegBackward, {&x}, {&out});
  return out;
}

Tensor Pow(Eager& e, const Tensor& x, double exponent) {
  Tensor out = Scalar(e, "pow_scalar", x, exponent);
  if (Node* node = e.Record(PowBackward, {&x}, {&out})) {
    e.Save(*node, {x});
    node->scalar = exponent;
  }
  return out;
}

Tensor Rsqrt(Eager& e, const Tensor& x) {
  Tensor out = Like(e, x);
  e.Launch("rsqrt", {&x}, {&out});
  if (Node* node = e.Record(RsqrtBackward, {&x}, {&out})) e.Save(*node, {out});
  return out;
}

Tensor Cast(Eager& e, const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  Tensor out = CastGradient(e, x, to);
  e.Record(CastBackward, {&x}, {&out});
  return out;
}

Tensor Relu(Eager& e, const Tensor& x) { return Activation(e, "relu", ReluBackward, true, x); }
Tensor Gelu(Eager& e, const Tensor& x) { return Activation(e, "gelu", GeluBackward, false, x); }
Tensor Tanh(Eager& e, const Tensor& x) { return Activation(e, "tanh", TanhBackward, true, x); }
Tensor GeluTanh(Eager& e, const Tensor& x) {
  return Activation(e, "gelu_tanh", GeluTanhBackward, false, x);
}
Tensor Silu(Eager& e, const Tensor& x) { return Activation(e, "silu", SiluBackward, false, x); }

Tensor Unary(Eager& e, const char* kernel, const Tensor& x) {
  Tensor out = Like(e, x);
  e.Launch(kernel, {&x}, {&out});
  return out;
}

Tensor MeanLast(Eager& e, const Tensor& x) {
  Dims shape = x.shape();
  shape.back() = 1;
  Tensor out = e.Empty(x.dtype(), shape);
  e.Launch("mean_last", {&x}, {&out});
  e.Record(MeanBackward, {&x}, {&out});
  return out;
}

Tensor SumAll(Eager& e, const Tensor& x) {
  Tensor out = e.Empty(x.dtype(), {});
  e.Launch("sum_all", {&x}, {&out});
  e.Record(SumBackward, {&x}, {&out});
  return out;
}

Tensor CatLast(Eager& e, const Tensor& a, const Tensor& b) {
  Dims shape = a.shape();
  shape.back() += b.shape().back();
  Tensor out = e.Empty(a.dtype(), shape);
  e.Launch("cat2", {&a, &b}, {&out});
  e.Record(CatBackward, {&a, &b}, {&out});
  return out;
}

Tensor SumTo(Eager& e, const Tensor& gradient, const Dims& shape) {
  // Leading dimensions that the input lacks are summed to 1 and dropped by a view.
  Dims kept = gradient.shape();
  const int shift = kept.size() - shape.size();
  for (int i = 0; i < kept.size(); ++i) {
    if (i < shift || shape[i - shift] == 1) kept[i] = 1;
  }
  Tensor sum = e.Empty(gradient.dtype(), kept);
  e.Launch("sum_to", {&gradient}, {&sum});
  if (shift == 0) return sum;
  return e.View(sum, shape, ContiguousStrides(shape), 0);
}

Tensor CastGradient(Eager& e, const Tensor& gradient, DType to) {
  Tensor out = e.Empty(to, gradient.shape(), StridesLike(gradient.shape(), gradient->strides));
  e.Launch("cast", {&gradient}, {&out});
  return out;
}

}  // namespace foreshard::ops
