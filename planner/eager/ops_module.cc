// Kernels of whole modules: embeddings, norms, rotary positions, softmax, losses.
#include "planner/eager/ops.h"

namespace foreshard::ops {
namespace {

Dims RowStatistics(const Dims& shape) {
  Dims stats = shape;
  stats.back() = 1;
  return stats;
}

void EmbeddingBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = e.Empty(in[0].dtype(), node.edges[0].shape);
  e.Launch("embedding_backward", {&in[0], &node.saved[0]}, {&g});
  out[0] = std::move(g);
}

// saved: x, mean, rstd, weight
void LayerNormBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto& s = node.saved;
  Tensor dx = e.Empty(in[0].dtype(), s[0].shape());
  Tensor dweight = e.Empty(in[0].dtype(), s[3].shape());
  if (node.edges.size() == 3) {
    Tensor dbias = e.Empty(in[0].dtype(), s[3].shape());
    e.Launch("layer_norm_backward", {&in[0], &s[0], &s[1], &s[2], &s[3]}, {&dx, &dweight, &dbias});
    out[2] = std::move(dbias);
  } else {
    e.Launch("layer_norm_backward_nobias", {&in[0], &s[0], &s[1], &s[2], &s[3]}, {&dx, &dweight});
  }
  out[0] = std::move(dx);
  out[1] = std::move(dweight);
}

// saved: x, rstd, weight
void RmsNormBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto& s = node.saved;
  Tensor dx = e.Empty(in[0].dtype(), s[0].shape());
  Tensor dweight = e.Empty(in[0].dtype(), s[2].shape());
  e.Launch("rms_norm_backward", {&in[0], &s[0], &s[1], &s[2]}, {&dx, &dweight});
  out[0] = std::move(dx);
  out[1] = std::move(dweight);
}

// The inverse rotation. saved: cos, sin
void RopeBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = e.Empty(in[0].dtype(), in[0].shape(), StridesLike(in[0].shape(), in[0]->strides));
  e.Launch("rope_backward", {&in[0], &node.saved[0], &node.saved[1]}, {&g});
  out[0] = std::move(g);
}

// saved: mask
void DropoutBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = e.Empty(in[0].dtype(), in[0].shape(), StridesLike(in[0].shape(), in[0]->strides));
  e.Launch("dropout_backward", {&in[0], &node.saved[0]}, {&g}, ScalarAttr{node.scalar});
  out[0] = std::move(g);
}

void SoftmaxBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = e.Empty(in[0].dtype(), in[0].shape());
  e.Launch("softmax_backward", {&in[0], &node.saved[0]}, {&g});
  out[0] = std::move(g);
}

void LogSoftmaxBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = e.Empty(in[0].dtype(), node.saved[0].shape());
  e.Launch("log_softmax_backward", {&in[0], &node.saved[0]}, {&g});
  out[0] = std::move(g);
}

// saved: log probabilities, labels, total weight
void NllLossBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto& s = node.saved;
  Tensor g = e.Empty(s[0].dtype(), s[0].shape());
  e.Launch("nll_loss_backward", {&in[0], &s[1], &s[2]}, {&g});
  out[0] = std::move(g);
}

// saved: logits, labels, logsumexp
void CrossEntropyBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto& s = node.saved;
  Tensor g = e.Empty(s[0].dtype(), s[0].shape());
  e.Launch("cross_entropy_backward", {&in[0], &s[0], &s[1], &s[2]}, {&g});
  out[0] = std::move(g);
}

}  // namespace

Tensor Embedding(Eager& e, const Tensor& indices, const Tensor& weight) {
  Dims shape = indices.shape();
  shape.push_back(weight.shape()[1]);
  Tensor out = e.Empty(weight.dtype(), shape);
  e.Launch("embedding", {&weight, &indices}, {&out});
  if (Node* node = e.Record(EmbeddingBackward, {&weight}, {&out})) e.Save(*node, {indices});
  return out;
}

Tensor LayerNorm(Eager& e, const Tensor& x, const Tensor& weight, const Tensor* bias, double eps,
                 DType stats) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  Tensor mean = e.Empty(stats, RowStatistics(x.shape()));
  Tensor rstd = e.Empty(stats, RowStatistics(x.shape()));
  if (bias) {
    e.Launch("layer_norm", {&x, &weight, bias}, {&out, &mean, &rstd}, EpsAttr{eps});
  } else {
    e.Launch("layer_norm_nobias", {&x, &weight}, {&out, &mean, &rstd}, EpsAttr{eps});
  }
  Node* node = bias ? e.Record(LayerNormBackward, {&x, &weight, bias}, {&out})
                    : e.Record(LayerNormBackward, {&x, &weight}, {&out});
  if (node) e.Save(*node, {x, mean, rstd, weight});
  return out;
}

Tensor FusedRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  Tensor rstd = e.Empty(DType::kFp32, RowStatistics(x.shape()));
  e.Launch("rms_norm", {&x, &weight}, {&out, &rstd}, EpsAttr{eps});
  if (Node* node = e.Record(RmsNormBackward, {&x, &weight}, {&out}))
    e.Save(*node, {x, rstd, weight});
  return out;
}

Tensor FusedRope(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor out = e.Empty(x.dtype(), x.shape(), StridesLike(x.shape(), x->strides));
  e.Launch("rope", {&x, &cos, &sin}, {&out});
  if (Node* node = e.Record(RopeBackward, {&x}, {&out})) e.Save(*node, {cos, sin});
  return out;
}

Tensor FusedDropout(Eager& e, const Tensor& x, double p) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  Tensor mask = e.Empty(DType::kBool, x.shape());
  e.Launch("dropout", {&x}, {&out, &mask}, ScalarAttr{p});
  if (p > 0) e.Draw();
  if (Node* node = e.Record(DropoutBackward, {&x}, {&out})) {
    e.Save(*node, {mask});
    node->scalar = p;
  }
  return out;
}

Tensor CompositeDropout(Eager& e, const Tensor& x, double p) {
  Tensor mask = e.Empty(x.dtype(), x.shape());
  e.Launch("dropout_mask", {}, {&mask}, ScalarAttr{p});
  if (p > 0) e.Draw();
  return Mul(e, x, mask);
}

Tensor SafeSoftmax(Eager& e, const Tensor& x) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  e.Launch("softmax", {&x}, {&out});
  if (Node* node = e.Record(SoftmaxBackward, {&x}, {&out})) e.Save(*node, {out});
  return out;
}

Tensor LogSoftmax(Eager& e, const Tensor& x) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  e.Launch("log_softmax", {&x}, {&out});
  if (Node* node = e.Record(LogSoftmaxBackward, {&x}, {&out})) e.Save(*node, {out});
  return out;
}

Tensor NllLoss(Eager& e, const Tensor& log_probs, const Tensor& labels) {
  Tensor loss = e.Empty(log_probs.dtype(), {});
  Tensor total_weight = e.Empty(log_probs.dtype(), {});
  e.Launch("nll_loss", {&log_probs, &labels}, {&loss, &total_weight});
  if (Node* node = e.Record(NllLossBackward, {&log_probs}, {&loss})) {
    e.Save(*node, {log_probs, labels, total_weight});
  }
  return loss;
}

Tensor ShiftLabels(Eager& e, const Tensor& labels) {
  constexpr double kIgnored = -100;
  const Dims& shape = labels.shape();
  Tensor padded = e.Empty(labels.dtype(), {shape[0], shape[1] + 1});
  e.Launch("pad_last", {&labels}, {&padded}, ScalarAttr{kIgnored});
  Tensor shifted = Slice(e, padded, 1, 1, shape[1]);
  padded.reset();
  return Contiguous(e, shifted);
}

Tensor FusedCrossEntropy(Eager& e, const Tensor& logits, const Tensor& labels) {
  Tensor loss = e.Empty(DType::kFp32, {});
  Tensor logsumexp = e.Empty(DType::kFp32, {logits.shape()[0]});
  e.Launch("cross_entropy", {&logits, &labels}, {&loss, &logsumexp});
  if (Node* node = e.Record(CrossEntropyBackward, {&logits}, {&loss})) {
    e.Save(*node, {logits, labels, logsumexp});
  }
  return loss;
}

}  // namespace foreshard::ops
