// How a flat parameter's gradient is joined, reduced and accumulated.
#include <utility>

#include "planner/lower/fsdp1.h"
#include "planner/lower/shard_ops.h"
#include "proto/strategy.h"

namespace foreshard {

// A unit's gradient on its way to the optimizer: what it is now, and what is held until it is
// there.
struct Fsdp1::Reduction {
  int unit;
  BufferId buffer;
  DType dtype;
  int64_t elems;
  StreamId stream;  // that works on it
  std::vector<BufferId> held = {};
};

// SplitBackward: one tensor of all parts. Where no gradient has come, zeros are made first, for the
// padding too.
Tensor Fsdp1::JoinGradients(int unit, std::span<Tensor> gradients) {
  const UnitLayout& layout = layouts_[unit];
  const DType dtype = sharding_.compute;
  std::vector<BufferId> in;
  pb::ConcatGradients join;
  int64_t missing = layout.flat->numel;
  builder_.SetUnit(unit);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) continue;
    const BufferId b = eager_.buffer(gradients[i]);
    MarkPartGradient(unit, gradients[i]);
    in.push_back(b);
    join.add_parameters(layout.parameters[i].parameter);
    missing -= layout.parameters[i].numel;
  }
  join.set_elems(layout.flat->numel);
  join.set_dtype(ToProto(dtype));
  const StreamId stream = sharding_.streams.compute;
  BufferId zeros = -1;
  if (missing > 0) zeros = builder_.Allocate(missing * SizeOf(dtype), pb::PARAM_GRAD, stream);
  Tensor joined = eager_.Empty(dtype, {layout.flat->numel});
  eager_.Adopt(joined, FlatGradientBuffer(unit));
  pb::Op& op = builder_.Issue(stream, in, std::vector{eager_.buffer(joined)});
  builder_.AddVersions(op);
  *op.mutable_concat_gradients() = join;
  if (zeros >= 0) builder_.Free(zeros);
  return joined;
}

// What several uses have added to counts as a gradient from then on.
void Fsdp1::MarkPartGradient(int unit, const Tensor& gradient) {
  const BufferId b = eager_.buffer(gradient);
  pb::Buffer& buffer = builder_.buffer(b);
  buffer.set_unit(unit);
  buffer.set_logits(false);
  if (eager_.IsSum(gradient)) {
    builder_.Settle(b, pb::PARAM_GRAD);
  } else {
    buffer.set_category(pb::PARAM_GRAD);
  }
}

// The next op allocates it. Without shards it may be what the optimizer reads.
BufferId Fsdp1::FlatGradientBuffer(int unit) {
  const int64_t bytes = layouts_[unit].flat->numel * SizeOf(sharding_.compute);
  const StreamId stream = sharding_.streams.compute;
  const bool is_result = !IsSharded() && sharding_.compute == sharding_.reduce &&
                         sharding_.reduce == sharding_.original;
  if (is_result) return ResultBuffer(unit, bytes, pb::UNSHARDED_GRAD, stream);
  return builder_.Allocate(bytes, pb::UNSHARDED_GRAD, stream);
}

// The next op allocates it. In all steps the same buffers, so that one update serves them all.
BufferId Fsdp1::ResultBuffer(int unit, int64_t bytes, pb::Category category, StreamId stream) {
  std::vector<BufferId>& results = states_[unit].results;
  for (const BufferId b : results) {
    if (builder_.IsAlive(b)) continue;
    builder_.Revive(b);
    return b;
  }
  results.push_back(builder_.Allocate(bytes, category, stream));
  return results.back();
}

// AccumulateGrad of the flat parameter, whose hook is the post-backward. The gradient lives until
// the hook returns, also where it was added to another.
void Fsdp1::ParameterGradient(int leaf, Tensor gradient, bool) {
  const int unit = leaf_units_[leaf];
  UnitState& s = states_[unit];
  if (s.gradient) {
    builder_.SetUnit(unit);
    eager_.Launch("add_", {&s.gradient, &gradient}, {&s.gradient});
  } else {
    s.gradient = gradient;
  }
  s.gradient_op = builder_.last_op();
  if (s.hooked_leaf == leaf) PostBackward(unit);
}

void Fsdp1::Reduce(int unit) {
  UnitState& s = states_[unit];
  builder_.SetUnit(unit);
  builder_.WaitBeforeNext(sharding_.streams.reduce, s.gradient_op);
  const Tensor gradient = std::move(s.gradient);
  Reduction r{.unit = unit,
              .buffer = eager_.buffer(gradient),
              .dtype = gradient.dtype(),
              .elems = gradient.numel(),
              .stream = sharding_.streams.reduce};
  NoteUse(r.buffer, r.stream);
  if (IsSharded()) {
    CastGradient(r);
    ReduceScatter(r);
    Finalize(r);
  } else {
    ReduceWhole(r, gradient);
  }
  for (const BufferId b : r.held) builder_.Free(b);
}

void Fsdp1::CastGradient(Reduction& r) {
  if (r.dtype == sharding_.reduce) return;
  const int64_t bytes = r.elems * SizeOf(sharding_.reduce);
  CopyInto(r, builder_.Allocate(bytes, pb::RS_INPUT, r.stream), sharding_.reduce, r.elems);
  r.held.push_back(r.buffer);
}

// _get_reduce_scatter_tensors: what is sent, if that is not the gradient itself, and what is
// received, which is allocated before anything is done to the former.
BufferId Fsdp1::ReduceScatterTensors(Reduction& r) {
  const int64_t shard = layouts_[r.unit].padded_numel;
  const int64_t padded = shard * sharding_.ranks;
  const bool pads = padded != r.elems;
  BufferId copy = -1;
  if (pads) copy = builder_.Allocate(padded * SizeOf(r.dtype), pb::RS_INPUT, r.stream);
  const int64_t bytes = shard * SizeOf(r.dtype);
  const bool becomes_gradient =
      r.dtype == sharding_.original && states_[r.unit].sharded_gradient < 0;
  const BufferId output = becomes_gradient ? ResultBuffer(r.unit, bytes, pb::SHARDED_GRAD, r.stream)
                                           : builder_.Allocate(bytes, pb::RS_OUTPUT, r.stream);
  if (!pads) return output;
  CopyInto(r, copy, r.dtype, padded);
  r.held.push_back(copy);
  return output;
}

void Fsdp1::CopyInto(Reduction& r, BufferId copy, DType to, int64_t elems) {
  pb::Op& op = builder_.Issue(r.stream, {r.buffer}, {copy});
  builder_.AddVersions(op);
  pb::ReduceCopyIn& in = *op.mutable_reduce_copy_in();
  in.set_elems_in(r.elems);
  in.set_elems_out(elems);
  in.add_from(ToProto(r.dtype));
  in.set_to(ToProto(to));
  r.buffer = copy;
  r.dtype = to;
  r.elems = elems;
}

void Fsdp1::Divide(const Reduction& r, double divisor) {
  if (divisor > 1) DivideInPlace(builder_, r.buffer, r.elems, r.dtype, divisor, r.stream);
}

void Fsdp1::ReduceScatter(Reduction& r) {
  const BufferId output = ReduceScatterTensors(r);
  Divide(r, divide_before_);
  const int64_t elems = layouts_[r.unit].padded_numel;
  pb::Op& op = builder_.Issue(r.stream, {r.buffer}, {output});
  pb::ReduceScatter& reduce = *op.mutable_reduce_scatter();
  reduce.set_group(sharding_.reduce_group);
  reduce.set_elems_in(r.elems);
  reduce.set_elems_out(elems);
  reduce.set_dtype(ToProto(r.dtype));
  reduce.set_reduction(pb::ReduceScatter::SUM);
  r.buffer = output;
  r.elems = elems;
  if (IsHybrid(strategy_)) {
    builder_.WaitBeforeNext(sharding_.streams.all_reduce, builder_.last_op());
    r.stream = sharding_.streams.all_reduce;
    NoteUse(output, r.stream);
    AllReduce(r);
  }
  Divide(r, divide_after_);
}

void Fsdp1::NoteUse(BufferId b, StreamId stream) {
  pb::Buffer& buffer = builder_.buffer(b);
  for (const int32_t known : buffer.recorded_on()) {
    if (known == stream) return;
  }
  buffer.add_recorded_on(stream);
}

void Fsdp1::AllReduce(const Reduction& r) {
  AllReduceInPlace(builder_, r.buffer, r.elems, r.dtype, sharding_.replicate_group,
                   pb::ReduceScatter::SUM, r.stream);
}

// The reduced gradient in the original dtype: a cast, or itself under another name.
void Fsdp1::InOriginalDType(Reduction& r, BufferId result) {
  FinalizeGradient(builder_, r.buffer, result, r.dtype, sharding_.original, r.stream);
  r.buffer = result;
  r.dtype = sharding_.original;
}

// _accumulate_sharded_grad
void Fsdp1::Finalize(Reduction& r) {
  UnitState& s = states_[r.unit];
  const bool accumulates = s.sharded_gradient >= 0;
  const int64_t bytes = r.elems * SizeOf(sharding_.original);
  if (r.dtype != sharding_.original) {
    r.held.push_back(r.buffer);
    InOriginalDType(r, accumulates ? builder_.Allocate(bytes, pb::RS_OUTPUT, r.stream)
                                   : ResultBuffer(r.unit, bytes, pb::SHARDED_GRAD, r.stream));
  } else if (!accumulates) {
    InOriginalDType(r, r.buffer);
  }
  if (!accumulates && offloads()) return ToHost(r);
  if (!accumulates) return SetGradient(r.unit, r.buffer);
  AddToGradient(builder_, r.buffer, s.sharded_gradient, sharding_.original, r.stream);
  r.held.push_back(r.buffer);
}

// _offload_grad. What was copied lives until the end of the backward.
void Fsdp1::ToHost(const Reduction& r) {
  UnitState& s = states_[r.unit];
  pb::Op& op = builder_.Issue(r.stream, {r.buffer}, {s.host_gradient});
  op.mutable_copy_to_host()->set_elems(r.elems);
  op.mutable_copy_to_host()->set_dtype(ToProto(sharding_.original));
  op.mutable_copy_to_host()->set_parameter(layouts_[r.unit].parameters.front().parameter);
  SetGradient(r.unit, s.host_gradient);
  s.sharded_gradient = r.buffer;
}

// The host, whose optimizer goes on, waits for the copies.
void Fsdp1::FreeOffloaded() {
  const OpId reduced = builder_.last_op();
  pb::Op& wait = builder_.Issue(kHost, {}, {});
  wait.mutable_release();
  wait.add_host_waits(reduced);
  for (UnitState& s : states_) {
    if (s.sharded_gradient >= 0) builder_.Free(std::exchange(s.sharded_gradient, -1));
  }
}

void Fsdp1::SetGradient(int unit, BufferId buffer) {
  states_[unit].sharded_gradient = buffer;
  for (Gradient& g : gradients_) {
    if (g.unit == unit) return static_cast<void>(g.buffer = buffer);
  }
  gradients_.push_back({unit, buffer});
}

// Without shards the reduced gradient stays the flat parameter's: what follows is added to it. The
// last of its forms is what the optimizer reads.
void Fsdp1::ReduceWhole(Reduction& r, const Tensor& gradient) {
  UnitState& s = states_[r.unit];
  const BufferId own = r.buffer;
  const BufferId before = s.sharded_gradient;
  const auto form = [&](DType dtype, pb::Category category) {
    const int64_t bytes = r.elems * SizeOf(dtype);
    return dtype == sharding_.original ? ResultBuffer(r.unit, bytes, category, r.stream)
                                       : builder_.Allocate(bytes, category, r.stream);
  };
  if (r.dtype != sharding_.reduce) {
    CopyInto(r, form(sharding_.reduce, pb::RS_INPUT), sharding_.reduce, r.elems);
  }
  Divide(r, divide_before_);
  AllReduce(r);
  Divide(r, divide_after_);
  const BufferId reduced = r.buffer;
  const bool casts = r.dtype != sharding_.original;
  InOriginalDType(r, casts ? form(sharding_.original, pb::SHARDED_GRAD) : reduced);
  if (reduced != own && reduced != r.buffer) r.held.push_back(reduced);
  if (before >= 0 && before != r.buffer) r.held.push_back(before);
  if (own == r.buffer) eager_.Disown(gradient);
  s.gradient = eager_.External(r.buffer, r.dtype, {r.elems});
  SetGradient(r.unit, r.buffer);
}

}  // namespace foreshard
