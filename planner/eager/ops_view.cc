// Views, and the copies where no view will do.
#include "planner/eager/ops.h"

namespace foreshard::ops {
namespace {

Tensor Clone(Eager& e, const Tensor& x) {
  Tensor out = e.Empty(x.dtype(), x.shape());
  e.Launch("copy", {&x}, {&out});
  return out;
}

// A view of the whole of `x`, or a copy of it, without a node.
Tensor RawReshape(Eager& e, const Tensor& x, const Dims& shape) {
  Dims strides;
  if (ViewStrides(x.shape(), x->strides, shape, &strides)) {
    return e.View(x, shape, strides, x->offset);
  }
  Tensor copy = Clone(e, x);
  return e.View(copy, shape, ContiguousStrides(shape), 0);
}

void ReshapeBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  out[0] = RawReshape(e, in[0], node.shape);
}

Tensor RawTranspose(Eager& e, const Tensor& x, int a, int b) {
  Dims shape = x.shape();
  Dims strides = x->strides;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return e.View(x, shape, strides, x->offset);
}

void TransposeBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  out[0] = RawTranspose(e, in[0], static_cast<int>(node.shape[0]), static_cast<int>(node.shape[1]));
}

Tensor RawSlice(Eager& e, const Tensor& x, int dim, int64_t start, int64_t length) {
  Dims shape = x.shape();
  shape[dim] = length;
  return e.View(x, shape, x->strides, x->offset + start * x->strides[dim]);
}

// Zeros of the input's shape with the gradient copied into its place.
void SliceBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const int dim = static_cast<int>(node.number);
  Tensor full = e.Empty(in[0].dtype(), node.edges[0].shape);
  e.Launch("slice_backward", {&in[0]}, {&full},
           SliceAttr{dim, static_cast<int64_t>(node.scalar), in[0].shape()[dim]});
  out[0] = std::move(full);
}

// One buffer of the whole input's shape, filled from the parts' gradients.
void ChunkBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const Dims& whole = node.edges[0].shape;
  for (Tensor& g : in) {
    if (g) continue;  // else no gradient reaches this part
    Dims part = whole;
    part.back() /= static_cast<int64_t>(in.size());
    g = e.Empty(node.edges[0].dtype, part);
    e.Launch("zeros", {}, {&g});
  }
  Tensor full = e.Empty(node.edges[0].dtype, whole);
  if (in.size() == 2) {
    e.Launch("cat2", {&in[0], &in[1]}, {&full});
  } else {
    CHECK_EQ(in.size(), 3u);
    e.Launch("cat3", {&in[0], &in[1], &in[2]}, {&full});
  }
  out[0] = std::move(full);
}

void CloneBackward(Eager&, Node&, std::span<Tensor> in, std::span<Tensor> out) { out[0] = in[0]; }

}  // namespace

Tensor Reshape(Eager& e, const Tensor& x, const Dims& shape) {
  Dims strides;
  Tensor source = x;
  if (!ViewStrides(x.shape(), x->strides, shape, &strides)) source = Contiguous(e, x);
  Tensor out = RawReshape(e, source, shape);
  if (Node* node = e.Record(ReshapeBackward, {&source}, {&out})) node->shape = source.shape();
  return out;
}

Tensor Transpose(Eager& e, const Tensor& x, int a, int b) {
  Tensor out = RawTranspose(e, x, a, b);
  if (Node* node = e.Record(TransposeBackward, {&x}, {&out})) node->shape = Dims{a, b};
  return out;
}

Tensor Slice(Eager& e, const Tensor& x, int dim, int64_t start, int64_t length) {
  Tensor out = RawSlice(e, x, dim, start, length);
  if (Node* node = e.Record(SliceBackward, {&x}, {&out})) {
    node->number = dim;
    node->scalar = static_cast<double>(start);
  }
  return out;
}

Tensor Unsqueeze(Eager& e, const Tensor& x, int dim) {
  Dims shape;
  Dims strides;
  for (int i = 0; i <= x.shape().size(); ++i) {
    if (i == dim) {
      shape.push_back(1);
      strides.push_back(i < x.shape().size() ? x->strides[i] * x.shape()[i] : 1);
    }
    if (i < x.shape().size()) {
      shape.push_back(x.shape()[i]);
      strides.push_back(x->strides[i]);
    }
  }
  Tensor out = e.View(x, shape, strides, x->offset);
  if (Node* node = e.Record(ReshapeBackward, {&x}, {&out})) node->shape = x.shape();
  return out;
}

std::vector<Tensor> Chunk(Eager& e, const Tensor& x, int count) {
  const int dim = x.shape().size() - 1;
  const int64_t part = x.shape()[dim] / count;
  std::vector<Tensor> out;
  std::vector<Tensor*> pointers;
  out.reserve(count);
  for (int i = 0; i < count; ++i) out.push_back(RawSlice(e, x, dim, i * part, part));
  for (Tensor& t : out) pointers.push_back(&t);
  const Tensor* in[] = {&x};
  e.Record(ChunkBackward, in, pointers);
  return out;
}

Tensor Contiguous(Eager& e, const Tensor& x) {
  if (IsContiguous(x.shape(), x->strides)) return x;
  Tensor out = Clone(e, x);
  e.Record(CloneBackward, {&x}, {&out});
  return out;
}

Tensor Dense(Eager& e, const Tensor& gradient) {
  for (int i = 0; i < gradient.shape().size(); ++i) {
    if (gradient.shape()[i] > 1 && gradient->strides[i] == 0) return Clone(e, gradient);
  }
  return gradient;
}

namespace {
// Gradient of repeated heads: the copies are summed, then the repeated dimension folded away.
void RepeatBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const Dims& x = node.edges[0].shape;
  Tensor wide = RawReshape(e, in[0], {x[0], x[1], node.number, x[2], x[3]});
  in[0].reset();
  Tensor sum = e.Empty(wide.dtype(), {x[0], x[1], 1, x[2], x[3]});
  e.Launch("sum_dim", {&wide}, {&sum}, DimAttr{2});
  out[0] = e.View(sum, x, ContiguousStrides(x), 0);
}
}  // namespace

Tensor RepeatHeads(Eager& e, const Tensor& x, int64_t count) {
  const Dims s = x.shape();
  const Dims& st = x->strides;
  Tensor expanded =
      e.View(x, {s[0], s[1], count, s[2], s[3]}, {st[0], st[1], 0, st[2], st[3]}, x->offset);
  Tensor wide = Clone(e, expanded);
  expanded.reset();
  const Dims shape{s[0], s[1] * count, s[2], s[3]};
  Tensor out = e.View(wide, shape, ContiguousStrides(shape), 0);
  if (Node* node = e.Record(RepeatBackward, {&x}, {&out})) node->number = count;
  return out;
}

}  // namespace foreshard::ops
