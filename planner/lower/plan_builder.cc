#include "planner/lower/plan_builder.h"

#include <algorithm>

#include "proto/oplib/oplib.h"

namespace foreshard {
namespace {

void Append(std::string& key, const void* data, size_t size) {
  key.append(static_cast<const char*>(data), size);
}

void AppendSpec(std::string& key, const TensorSpec& spec) {
  const char head[2] = {static_cast<char>(spec.dtype), static_cast<char>(spec.shape.size())};
  Append(key, head, sizeof head);
  Append(key, spec.shape.begin(), sizeof(int64_t) * spec.shape.size());
  Append(key, spec.strides.begin(), sizeof(int64_t) * spec.strides.size());
}

void AppendAttr(std::string& key, const KernelAttr& attr) {
  key.push_back(static_cast<char>(attr.index()));
  std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, AttentionAttr>) {
          key.push_back(a.causal ? 1 : 0);
          Append(key, &a.scale, sizeof a.scale);
          Append(key, &a.dropout, sizeof a.dropout);
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          Append(key, &a, sizeof a);
        }
      },
      attr);
}

void FillType(const TensorSpec& spec, pb::TensorType& type) {
  type.set_dtype(ToProto(spec.dtype));
  for (int64_t d : spec.shape) type.add_shape(d);
  if (IsContiguous(spec.shape, spec.strides)) return;
  for (int64_t s : spec.strides) type.add_strides(s);
}

struct AttrFiller {
  pb::Kernel& kernel;
  void operator()(std::monostate) const {}
  void operator()(ScalarAttr a) const { kernel.set_scalar(a.value); }
  void operator()(EpsAttr a) const { kernel.set_eps(a.value); }
  void operator()(DimAttr a) const { kernel.set_dim(a.dim); }
  void operator()(SliceAttr a) const {
    kernel.mutable_slice()->set_dim(a.dim);
    kernel.mutable_slice()->set_start(a.start);
    kernel.mutable_slice()->set_length(a.length);
  }
  void operator()(AttentionAttr a) const {
    kernel.mutable_attention()->set_causal(a.causal);
    kernel.mutable_attention()->set_scale(a.scale);
    kernel.mutable_attention()->set_dropout(a.dropout);
  }
};

}  // namespace

pb::DType ToProto(DType t) { return static_cast<pb::DType>(t); }

StreamId PlanBuilder::AddStream(std::string_view name, pb::Stream::Role role) {
  pb::Stream* stream = plan_.add_streams();
  stream->set_name(std::string(name));
  stream->set_role(role);
  pending_waits_.emplace_back();
  return plan_.streams_size() - 1;
}

void PlanBuilder::BeginSegment(std::string_view name) {
  CHECK(pending_allocs_.empty()) << "allocations pending at the end of a segment";
  segment_ = plan_.add_segments();
  segment_->set_name(std::string(name));
  for (auto& waits : pending_waits_) waits.clear();
  for (int& writes : writes_) writes = std::min(writes, 1);
}

void PlanBuilder::Replay(int segment) {
  for (const pb::Op& op : plan_.segments(segment).ops()) {
    for (const BufferId b : op.allocs()) {
      CHECK(!alive_[b]) << "buffer " << b << " allocated twice";
      alive_[b] = true;
      writes_[b] = 0;
    }
    for (const BufferId b : op.out()) ++writes_[b];
    for (const BufferId b : op.frees()) {
      CHECK(alive_[b]) << "buffer " << b << " freed twice";
      alive_[b] = false;
    }
  }
}

BufferId PlanBuilder::Allocate(int64_t bytes, pb::Category category, StreamId stream) {
  CHECK_GE(bytes, 0);
  pb::Buffer* buffer = plan_.add_buffers();
  buffer->set_bytes(bytes);
  buffer->set_category(category);
  buffer->set_stream(stream);
  if (unit_ >= 0) buffer->set_unit(unit_);
  if (module_ >= 0) buffer->set_module(module_);
  const BufferId id = plan_.buffers_size() - 1;
  alive_.push_back(true);
  resident_.push_back(false);
  writes_.push_back(0);
  pending_allocs_.push_back(id);
  return id;
}

void PlanBuilder::Revive(BufferId b) {
  CHECK(!alive_[b]) << "buffer " << b << " allocated twice";
  alive_[b] = true;
  writes_[b] = 0;
  pending_allocs_.push_back(b);
}

BufferId PlanBuilder::AddResident(int64_t bytes, pb::Category category, StreamId stream) {
  const BufferId id = Allocate(bytes, category, stream);
  pending_allocs_.pop_back();
  resident_[id] = true;
  plan_.add_resident(id);
  return id;
}

void PlanBuilder::Free(BufferId b) {
  CHECK(alive_[b]) << "buffer " << b << " freed twice";
  CHECK(segment_->ops_size() > 0) << "a free before the first op of a segment";
  alive_[b] = false;
  segment_->mutable_ops(segment_->ops_size() - 1)->add_frees(b);
}

void PlanBuilder::Settle(BufferId b, pb::Category category) {
  pb::Settle& settle = *segment_->mutable_ops(segment_->ops_size() - 1)->add_settles();
  settle.set_buffer(b);
  settle.set_category(category);
}

void PlanBuilder::WaitBeforeNext(StreamId stream, OpId op) {
  if (op == kNoOp) return;
  for (OpId pending : pending_waits_[stream]) {
    if (pending == op) return;
  }
  pending_waits_[stream].push_back(op);
}

pb::Op& PlanBuilder::Issue(StreamId stream, std::initializer_list<BufferId> in,
                           std::initializer_list<BufferId> out) {
  return Issue(stream, std::span(in.begin(), in.size()), std::span(out.begin(), out.size()));
}

pb::Op& PlanBuilder::Issue(StreamId stream, std::span<const BufferId> in,
                           std::span<const BufferId> out) {
  pb::Op& op = *segment_->add_ops();
  if (stream != kHost) {
    op.set_stream(stream);
    for (OpId wait : pending_waits_[stream]) op.add_waits(wait);
    pending_waits_[stream].clear();
  }
  for (BufferId b : pending_allocs_) op.add_allocs(b);
  pending_allocs_.clear();
  op.mutable_in()->Add(in.begin(), in.end());
  op.mutable_out()->Add(out.begin(), out.end());
  for (BufferId b : out) ++writes_[b];
  if (unit_ >= 0) op.set_unit(unit_);
  if (module_ >= 0) op.set_module(module_);
  op.set_phase(phase_);
  if (micro_batch_ > 0) op.set_micro_batch(micro_batch_);
  return op;
}

void PlanBuilder::AddVersions(pb::Op& op) const {
  bool needed = false;
  std::vector<int> versions;
  for (BufferId b : op.in()) {
    const int own = static_cast<int>(std::count(op.out().begin(), op.out().end(), b));
    versions.push_back(resident_[b] ? 0 : writes_[b] - own);
    needed |= versions.back() > 1;
  }
  if (needed) op.mutable_in_versions()->Add(versions.begin(), versions.end());
}

int PlanBuilder::Kernel(std::string_view name, std::span<const TensorSpec> operands,
                        std::span<const TensorSpec> results, const KernelAttr& attr) {
  key_.assign(name);
  key_.push_back(static_cast<char>(operands.size()));
  for (const TensorSpec& spec : operands) AppendSpec(key_, spec);
  for (const TensorSpec& spec : results) AppendSpec(key_, spec);
  AppendAttr(key_, attr);
  auto [it, fresh] = kernels_.try_emplace(key_, 0);
  if (fresh) it->second = AddKernel(name, operands, results, attr);
  return it->second;
}

int PlanBuilder::AddKernel(std::string_view name, std::span<const TensorSpec> operands,
                           std::span<const TensorSpec> results, const KernelAttr& attr) {
  pb::Kernel* kernel = plan_.add_kernels();
  kernel->set_name(std::string(name));
  for (const TensorSpec& spec : operands) FillType(spec, *kernel->add_operands());
  for (const TensorSpec& spec : results) FillType(spec, *kernel->add_results());
  std::visit(AttrFiller{*kernel}, attr);
  const Status status = oplib::Complete(*kernel);
  CHECK(status.ok()) << "kernel " << name << ": " << status.message();
  return plan_.kernels_size() - 1;
}

}  // namespace foreshard
