// Matrix products.
#include "planner/eager/ops.h"

namespace foreshard::ops {
namespace {

Tensor Transposed(Eager& e, const Tensor& x) {
  const int n = x.shape().size();
  Dims shape = x.shape();
  Dims strides = x->strides;
  std::swap(shape[n - 1], shape[n - 2]);
  std::swap(strides[n - 1], strides[n - 2]);
  return e.View(x, shape, strides, x->offset);
}

Tensor Rows(Eager& e, const Tensor& x) {
  const int64_t features = x.shape().back();
  return Reshape(e, x, {x.numel() / features, features});
}

Tensor Product(Eager& e, const Tensor& a, const Tensor& b) {
  Tensor out = e.Empty(a.dtype(), {a.shape()[0], b.shape()[1]});
  e.Launch("mm", {&a, &b}, {&out});
  return out;
}

// edges: x[, bias], weight; saved: x as rows (if the weight is trained), weight (if x needs it).
// Without a bias PyTorch computes the weight's gradient first, with one the input's.
// node.flag: the weight is stored [in, out].
void LinearBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  Tensor g = Rows(e, in[0]);
  in[0].reset();
  const bool bias = node.edges.size() == 3;
  const int weight_edge = bias ? 2 : 1;
  const auto input_gradient = [&] {
    if (!node.NeedsGrad(0)) return;
    Tensor weight = node.flag ? Transposed(e, node.saved[1]) : node.saved[1];
    out[0] = Product(e, g, weight);
  };
  const auto weight_gradient = [&] {
    if (!node.NeedsGrad(weight_edge)) return;
    Tensor left = Transposed(e, node.flag ? node.saved[0] : g);
    out[weight_edge] = Product(e, left, node.flag ? g : node.saved[0]);
  };
  if (bias) input_gradient();
  weight_gradient();
  if (!bias) input_gradient();
  if (bias && node.NeedsGrad(1)) {
    Tensor sum = e.Empty(g.dtype(), {1, g.shape()[1]});
    e.Launch("sum_to", {&g}, {&sum});
    out[1] = e.View(sum, {g.shape()[1]}, {1}, 0);
  }
}

// gradients of a [M, N, K] x b [M, K, P]
void BmmBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto product = [&](const Tensor& a, const Tensor& b) {
    Tensor r = e.Empty(a.dtype(), {a.shape()[0], a.shape()[1], b.shape()[2]});
    e.Launch("bmm", {&a, &b}, {&r});
    return r;
  };
  if (node.NeedsGrad(1)) {
    Tensor at = Transposed(e, node.saved[0]);
    out[1] = product(at, in[0]);
  }
  if (node.NeedsGrad(0)) {
    Tensor bt = Transposed(e, node.saved[1]);
    out[0] = product(in[0], bt);
  }
}

}  // namespace

namespace {

// `matrix` is the weight as the right factor [in, out].
Tensor Affine(Eager& e, const Tensor& x, const Tensor& weight, const Tensor& matrix,
              const Tensor* bias, bool stored_in_out) {
  Tensor rows = Rows(e, x);
  const int64_t features = matrix.shape()[1];
  Tensor product = e.Empty(x.dtype(), {rows.shape()[0], features});
  if (bias) {
    e.Launch("addmm", {bias, &rows, &matrix}, {&product});
  } else {
    e.Launch("mm", {&rows, &matrix}, {&product});
  }
  // A bias has its gradient before the weight, which goes through a transposition of its own.
  Node* node = bias ? e.Record(LinearBackward, {&rows, bias, &weight}, {&product})
                    : e.Record(LinearBackward, {&rows, &weight}, {&product});
  if (node) {
    node->flag = stored_in_out;
    e.Save(*node,
           {weight->requires_grad ? rows : Tensor(), rows->requires_grad ? weight : Tensor()});
  }
  Dims shape = x.shape();
  shape.back() = features;
  return Reshape(e, product, shape);
}

}  // namespace

Tensor Linear(Eager& e, const Tensor& x, const Tensor& weight, const Tensor* bias) {
  Tensor matrix = Transposed(e, weight);
  return Affine(e, x, weight, matrix, bias, false);
}

Tensor Conv1d(Eager& e, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return Affine(e, x, weight, weight, &bias, true);
}

Tensor Bmm(Eager& e, const Tensor& a, const Tensor& b) {
  Tensor out = e.Empty(a.dtype(), {a.shape()[0], a.shape()[1], b.shape()[2]});
  e.Launch("bmm", {&a, &b}, {&out});
  if (Node* node = e.Record(BmmBackward, {&a, &b}, {&out})) {
    e.Save(*node, {b->requires_grad ? a : Tensor(), a->requires_grad ? b : Tensor()});
  }
  return out;
}

}  // namespace foreshard::ops
