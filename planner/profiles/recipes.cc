// What Python code and composite operators do, statement by statement. A local Tensor lives as long
// as the variable it stands for; reset() marks the places where Python drops a temporary early.
#include <cmath>

#include "planner/eager/ops.h"
#include "planner/profiles/profile.h"

namespace foreshard::recipes {

using namespace ops;  // NOLINT: recipes read as the code they stand for

// transformers' LlamaRMSNorm.forward and its relatives.
Tensor PythonRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps) {
  Tensor hidden = Cast(e, x, DType::kFp32);
  Tensor squares = Pow(e, hidden, 2);
  Tensor variance = MeanLast(e, squares);
  squares.reset();
  Tensor shifted = AddScalar(e, variance, eps);
  Tensor scale = Rsqrt(e, shifted);
  shifted.reset();
  hidden = Mul(e, hidden, scale);
  scale.reset();
  Tensor narrow = Cast(e, hidden, x.dtype());
  return Mul(e, weight, narrow);
}

// The composite that torch.nn.RMSNorm runs on CPU: the weight multiplies in fp32.
Tensor CompositeRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps) {
  Tensor upcast = Cast(e, x, DType::kFp32);
  Tensor normalized;
  {
    Tensor squares = Pow(e, upcast, 2);
    Tensor mean = MeanLast(e, squares);
    AddScalarInPlace(e, mean, eps);
    Tensor scale = Rsqrt(e, mean);
    mean.reset();
    squares.reset();
    normalized = Mul(e, upcast, scale);
  }
  Tensor scaled = Mul(e, normalized, weight);
  return Cast(e, scaled, x.dtype());
}

// transformers' apply_rotary_pos_emb on one of q and k: x * cos + rotate_half(x) * sin.
Tensor PythonRope(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t half = x.shape().back() / 2;
  Tensor cos_heads = Unsqueeze(e, cos, 1);
  Tensor sin_heads = Unsqueeze(e, sin, 1);
  Tensor straight = Mul(e, x, cos_heads);
  Tensor rotated;
  {
    Tensor first = Slice(e, x, 3, 0, half);
    Tensor second = Slice(e, x, 3, half, half);
    Tensor negated = Neg(e, second);
    rotated = CatLast(e, negated, first);
  }
  Tensor turned = Mul(e, rotated, sin_heads);
  rotated.reset();
  return Add(e, straight, turned);
}

// The composite attention: scores and probabilities are materialised, in fp32 for half precision.
Tensor MathAttention(Eager& e, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                     double dropout, KernelProfile::Dropout drop) {
  const Dims s = q.shape();
  const int64_t groups = s[1] / k.shape()[1];
  const double scale = std::sqrt(1 / std::sqrt(static_cast<double>(s[3])));
  Tensor query = Cast(e, q, DType::kFp32);
  Tensor key = Cast(e, k, DType::kFp32);
  Tensor value = Cast(e, v, DType::kFp32);
  query = MulScalar(e, query, scale);
  Tensor bias;
  if (causal) {
    Tensor ones = e.Empty(DType::kBool, {s[2], k.shape()[2]});
    e.Launch("ones", {}, {&ones});
    Tensor lower = e.Empty(DType::kBool, ones.shape());
    e.Launch("tril", {&ones}, {&lower});
    ones.reset();
    bias = e.Empty(DType::kFp32, lower.shape());
    e.Launch("mask_to_bias", {&lower}, {&bias});
  }
  if (groups > 1) {
    key = RepeatHeads(e, key, groups);
    value = RepeatHeads(e, value, groups);
  }
  const int64_t batch = s[0] * s[1];
  Tensor scores;
  {
    Tensor key_t = Transpose(e, key, 2, 3);
    Tensor scaled = MulScalar(e, key_t, scale);
    Tensor a = Reshape(e, query, {batch, s[2], s[3]});
    Tensor b = Reshape(e, scaled, {batch, s[3], k.shape()[2]});
    Tensor product = Bmm(e, a, b);
    scores = Reshape(e, product, {s[0], s[1], s[2], k.shape()[2]});
  }
  if (causal) scores = Add(e, scores, bias);
  Tensor probabilities = SafeSoftmax(e, scores);
  scores.reset();
  if (dropout > 0) probabilities = drop(e, probabilities, dropout);
  Tensor returned = Cast(e, probabilities, q.dtype());
  Tensor mixed;
  {
    Tensor a = Reshape(e, probabilities, {batch, s[2], k.shape()[2]});
    probabilities.reset();
    Tensor b = Reshape(e, value, {batch, k.shape()[2], s[3]});
    Tensor product = Bmm(e, a, b);
    mixed = Reshape(e, product, s);
  }
  return Cast(e, mixed, q.dtype());
}

// transformers' NewGELUActivation: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Tensor PythonGeluNew(Eager& e, const Tensor& x) {
  Tensor half = MulScalar(e, x, 0.5);
  Tensor inner = Pow(e, x, 3);
  inner = MulScalar(e, inner, 0.044715);
  inner = Add(e, x, inner);
  inner = MulScalar(e, inner, std::sqrt(2 / 3.14159265358979323846));
  inner = Tanh(e, inner);
  inner = AddScalar(e, inner, 1);
  return Mul(e, half, inner);
}

// F.cross_entropy(logits, labels), mean over the rows.
Tensor CrossEntropy(Eager& e, const Tensor& logits, const Tensor& labels) {
  Tensor log_probs = LogSoftmax(e, logits);
  return NllLoss(e, log_probs, labels);
}

Tensor Positions(Eager& e, int64_t seq) {
  Tensor range = e.Empty(DType::kInt64, {seq});
  e.Launch("arange", {}, {&range});
  Tensor shifted = e.Empty(DType::kInt64, {seq});
  e.Launch("add_scalar", {&range}, {&shifted}, ScalarAttr{0});
  range.reset();
  return Unsqueeze(e, shifted, 0);
}

// transformers' LlamaRotaryEmbedding.forward.
void RotaryTables(Eager& e, const Tensor& positions, const Tensor& inverse_frequencies, DType dtype,
                  Tensor* cos, Tensor* sin) {
  Tensor column = Unsqueeze(e, positions, 2);
  Tensor numbers = Cast(e, column, DType::kFp32);
  Tensor angles = Mul(e, numbers, inverse_frequencies);
  numbers.reset();
  Tensor table = CatLast(e, angles, angles);
  const auto scaled = [&](const char* kernel) {
    Tensor values = Unary(e, kernel, table);
    return MulScalar(e, values, 1);
  };
  Tensor cosines = scaled("cos");
  Tensor sines = scaled("sin");
  *cos = Cast(e, cosines, dtype);
  *sin = Cast(e, sines, dtype);
}

}  // namespace foreshard::recipes
