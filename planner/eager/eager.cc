#include "planner/eager/eager.h"

#include "planner/eager/ops.h"
#include "proto/oplib/oplib.h"

namespace foreshard {

void Eager::MarkLogits(int64_t vocab_size, int64_t tokens) {
  vocab_size_ = vocab_size;
  tokens_ = tokens;
}

Tensor Eager::NewRecord(TensorRecord record) {
  ++storages_[record.storage].references;
  int id;
  if (free_records_.empty()) {
    id = static_cast<int>(tensors_.size());
    tensors_.push_back(record);
  } else {
    id = free_records_.back();
    free_records_.pop_back();
    tensors_[id] = record;
  }
  return Tensor(this, id);
}

void Eager::Let(int id) {
  TensorRecord& record = tensors_[id];
  if (--record.references > 0) return;
  Storage& storage = storages_[record.storage];
  free_records_.push_back(id);
  if (--storage.references > 0 || storage.external || storage.buffer < 0) return;
  builder_.Free(storage.buffer);
}

Tensor Eager::Empty(DType dtype, const Dims& shape, const Dims& strides) {
  const int64_t numel = Numel(shape);
  const bool logits = vocab_size_ > 0 && !shape.empty() && shape.back() == vocab_size_ &&
                      numel == vocab_size_ * tokens_;
  Storage& storage = storages_.emplace_back();
  storage.logits = logits || in_loss_;
  storage.bytes = numel * SizeOf(dtype);
  TensorRecord record;
  record.storage = static_cast<int>(storages_.size()) - 1;
  record.dtype = dtype;
  record.shape = shape;
  record.strides = strides.empty() ? ContiguousStrides(shape) : strides;
  return NewRecord(record);
}

Tensor Eager::External(BufferId buffer, DType dtype, const Dims& shape) {
  Storage& storage = storages_.emplace_back();
  storage.buffer = buffer;
  storage.external = true;
  TensorRecord record;
  record.storage = static_cast<int>(storages_.size()) - 1;
  record.dtype = dtype;
  record.shape = shape;
  record.strides = ContiguousStrides(shape);
  return NewRecord(record);
}

void Eager::Rebind(const Tensor& t, BufferId buffer) {
  Storage& storage = storages_[t->storage];
  CHECK(storage.external);
  storage.buffer = buffer;
}

Tensor Eager::View(const Tensor& base, const Dims& shape, const Dims& strides, int64_t offset) {
  TensorRecord record;
  record.storage = base->storage;
  record.dtype = base->dtype;
  record.shape = shape;
  record.strides = strides;
  record.offset = offset;
  return NewRecord(record);
}

void Eager::MakeLeaf(const Tensor& t, int parameter) {
  TensorRecord& record = tensors_[t.id_];
  record.requires_grad = true;
  record.parameter = parameter;
  if (parameter >= static_cast<int>(leaves_.size())) leaves_.resize(parameter + 1);
}

bool Eager::IsSoleReference(const Tensor& t) const {
  return t->references == 1 && storages_[t->storage].references == 1;
}

// The memory of what a launch writes first.
void Eager::Allocate(const Tensor& t) {
  Storage& storage = storages_[t->storage];
  storage.written_by = launches_;
  if (storage.buffer >= 0) return;
  const pb::Category category = IsRecomputing() ? pb::RECOMPUTE : pb::TEMP;
  storage.buffer = builder_.Allocate(storage.bytes, category, stream_);
  if (storage.logits) builder_.buffer(storage.buffer).set_logits(true);
}

void Eager::Adopt(const Tensor& t, BufferId buffer) {
  Storage& storage = storages_[t->storage];
  CHECK(storage.buffer < 0 && !storage.external);
  storage.buffer = buffer;
}

BufferId Eager::Disown(const Tensor& t) {
  Storage& storage = storages_[t->storage];
  storage.external = true;
  return storage.buffer;
}

void Eager::Launch(std::string_view kernel, std::initializer_list<const Tensor*> in,
                   std::initializer_list<const Tensor*> out, const KernelAttr& attr) {
  launched_ = StartLaunch(kernel, out);
  if (!launched_) return;
  operand_specs_.clear();
  result_specs_.clear();
  in_buffers_.clear();
  out_buffers_.clear();
  bool offsets = false;
  for (const Tensor* t : in) {
    operand_specs_.push_back({(*t)->dtype, (*t)->shape, (*t)->strides});
    in_buffers_.push_back(buffer(*t));
    offsets |= (*t)->offset != 0;
  }
  for (const Tensor* t : out) {
    CHECK((*t)->offset == 0) << kernel << " writes into the middle of a buffer";
    Allocate(*t);
    result_specs_.push_back({(*t)->dtype, (*t)->shape, (*t)->strides});
    out_buffers_.push_back(buffer(*t));
  }
  const int index = builder_.Kernel(kernel, operand_specs_, result_specs_, attr);
  const int64_t scratch_bytes = oplib::Find(kernel)->scratch(builder_.plan().kernels(index));
  BufferId scratch = -1;
  if (scratch_bytes > 0) scratch = builder_.Allocate(scratch_bytes, pb::WORKSPACE, stream_);
  pb::Op& op = builder_.Issue(stream_, in_buffers_, out_buffers_);
  op.mutable_compute()->set_kernel(index);
  if (IsRecomputing()) op.mutable_compute()->set_recompute(true);
  if (offsets) {
    for (const Tensor* t : in) op.add_in_offsets((*t)->offset);
  }
  builder_.AddVersions(op);
  if (scratch >= 0) builder_.Free(scratch);
}

int Eager::Draw(int random) {
  if (random < 0) random = draws_++;
  if (launched_) builder_.SetRandom(random);
  return random;
}

std::vector<BufferId> Eager::LiveBuffers(int since) const {
  std::vector<BufferId> live;
  for (size_t i = static_cast<size_t>(since); i < storages_.size(); ++i) {
    const Storage& s = storages_[i];
    if (!s.external && s.references > 0 && s.buffer >= 0) live.push_back(s.buffer);
  }
  return live;
}

// ---- autograd

Node* Eager::Record(BackwardFunction backward, std::initializer_list<const Tensor*> in,
                    std::initializer_list<Tensor*> out) {
  return Record(backward, std::span(in.begin(), in.size()), std::span(out.begin(), out.size()));
}

Node* Eager::Record(BackwardFunction backward, std::span<const Tensor* const> in,
                    std::span<Tensor* const> out) {
  bool needed = false;
  for (const Tensor* t : in) needed |= (*t)->requires_grad;
  if (!needed || !records_) return nullptr;
  const int index = static_cast<int>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.backward = backward;
  node.module = builder_.module();
  node.edges.reserve(in.size());
  for (const Tensor* t : in) {
    const TensorRecord& r = **t;
    Edge edge;
    edge.shape = r.shape;
    edge.dtype = r.dtype;
    if (r.requires_grad) {
      edge.node = r.node;
      edge.output = r.output;
      edge.parameter = r.node >= 0 ? -1 : r.parameter;
      if (edge.parameter >= 0) ++leaves_[edge.parameter].uses;
    }
    node.edges.push_back(edge);
  }
  node.gradients.resize(out.size());
  int position = 0;
  for (Tensor* t : out) {
    TensorRecord& r = tensors_[t->id_];
    r.requires_grad = true;
    r.node = index;
    r.output = position++;
  }
  return &node;
}

namespace {
void PassThrough(Eager&, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (node.NeedsGrad(static_cast<int>(i))) out[i] = in[i];
  }
}
}  // namespace

bool Eager::MarkPoint(std::span<Tensor*> values, int hook) {
  if (!records_) return false;
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  std::vector<Tensor> before;
  before.reserve(values.size());
  for (Tensor* t : values) {
    if (!(*t)->requires_grad) continue;
    before.push_back(*t);
    *t = View(*t, (*t)->shape, (*t)->strides, (*t)->offset);
    in.push_back(&before.back());
    out.push_back(t);
  }
  if (in.empty()) return false;
  Node* node = Record(PassThrough, in, out);
  node->hook = hook;
  return true;
}

void Eager::HookGradient(const Tensor& value, int hook) {
  CHECK(value->requires_grad && value->node >= 0);
  nodes_[value->node].pre_hooks.push_back(hook);
}

Tensor GradientHooks::JoinGradients(int, std::span<Tensor>) {
  CHECK(false) << "no leaf is split";
  return {};
}

void Eager::JoinBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  out[0] = e.hooks_->JoinGradients(static_cast<int>(node.number), in);
}

void Eager::SplitLeaf(const Tensor& leaf, std::span<Tensor*> views, int hook) {
  const Tensor* in[] = {&leaf};
  if (Node* node = Record(JoinBackward, in, views)) node->number = hook;
}

void Eager::Backward(const Tensor& loss, GradientHooks& hooks) {
  CHECK(loss->node >= 0) << "nothing requires a gradient";
  Tensor seed = Empty(loss->dtype, loss->shape);
  Launch("ones_like", {&loss}, {&seed});
  nodes_[loss->node].gradients[loss->output] = seed;
  hooks_ = &hooks;
  RunNodes(static_cast<int>(nodes_.size()) - 1, 0, hooks);
  builder_.SetModule(-1);
  hooks.AtEnd();
  nodes_.clear();
  regions_.clear();
  for (LeafState& leaf : leaves_) leaf = {};
}

void Eager::RunNodes(int last, int first, GradientHooks& hooks) {
  for (int i = last; i >= first; --i) RunNode(i, hooks);
}

void Eager::RunNode(int index, GradientHooks& hooks) {
  Node& node = nodes_[index];
  bool reached = false;
  for (const Tensor& g : node.gradients) reached |= static_cast<bool>(g);
  if (!reached) return;
  builder_.SetModule(node.module);
  for (int hook : node.pre_hooks) hooks.BeforeNode(hook);
  if (node.hook >= 0) hooks.AtPoint(node.hook);
  builder_.SetModule(node.module);
  if (!node.places.empty()) Unpack(node);
  std::vector<Tensor> out(node.edges.size());
  node.backward(*this, node, node.gradients, out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i]) out[i] = FitGradient(node.edges[i], std::move(out[i]), hooks);
  }
  node.gradients.clear();
  ReleaseNode(node);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] && node.edges[i].valid()) Deliver(node.edges[i], std::move(out[i]), hooks);
  }
}

// A gradient may be larger than its input (broadcast) or of another dtype (promotion).
Tensor Eager::FitGradient(const Edge& edge, Tensor gradient, const GradientHooks& hooks) {
  if (!(gradient.shape() == edge.shape)) {
    Tensor summed = ops::SumTo(*this, gradient, edge.shape);
    gradient = std::move(summed);
  }
  const DType kept = edge.parameter < 0
                         ? edge.dtype
                         : hooks.GradientDType(edge.parameter, gradient.dtype(), edge.dtype);
  if (gradient.dtype() != kept) {
    Tensor cast = ops::CastGradient(*this, gradient, kept);
    gradient = std::move(cast);
  }
  return gradient;
}

void Eager::Deliver(const Edge& edge, Tensor gradient, GradientHooks& hooks) {
  if (edge.parameter >= 0) {
    gradient = ops::Dense(*this, gradient);
    LeafState& leaf = leaves_[edge.parameter];
    leaf.gradient = leaf.gradient ? AddGradients(std::move(leaf.gradient), std::move(gradient))
                                  : std::move(gradient);
    if (++leaf.arrived == leaf.uses) {
      const bool summed = leaf.uses > 1;
      leaf.uses = leaf.arrived = 0;
      hooks.ParameterGradient(edge.parameter, std::move(leaf.gradient), summed);
    }
    return;
  }
  Tensor& slot = nodes_[edge.node].gradients[edge.output];
  slot = slot ? AddGradients(std::move(slot), std::move(gradient)) : std::move(gradient);
}

Tensor Eager::AddGradients(Tensor first, Tensor second) {
  if (!IsSoleReference(first)) std::swap(first, second);
  if (IsSoleReference(first)) {
    Launch("add_", {&first, &second}, {&first});
    storages_[first->storage].sum = true;
    return first;
  }
  std::swap(first, second);
  Tensor sum = Empty(first.dtype(), first.shape(), StridesLike(first.shape(), first->strides));
  Launch("add", {&first, &second}, {&sum});
  storages_[sum->storage].sum = true;
  return sum;
}

}  // namespace foreshard
