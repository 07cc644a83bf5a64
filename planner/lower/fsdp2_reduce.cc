// How a unit's gradients are collected, reduced and accumulated.
#include <utility>

#include "planner/eager/ops.h"
#include "planner/lower/fsdp2.h"
#include "planner/lower/shard_ops.h"

namespace foreshard {

// The gradients of a unit on their way into a reduction, in layout order.
struct Fsdp2::Collected {
  std::vector<Tensor> tensors;
  std::vector<int> positions;
};

// The library divides by the number of ranks within the collective where its dtype cannot overflow;
// for fp16 about half of it before and the rest after the sum.
Fsdp2::Factors Fsdp2::ChooseFactors() const {
  const int ranks = sharding_.ranks * sharding_.replicas;
  const std::optional<double>& asked = sharding_.divide_factor;
  const bool overflows = sharding_.reduce == DType::kFp16;
  Factors f;
  if (!overflows && !sharding_.force_sum) {
    const bool averages = ranks > 1 || sharding_.behaviour.alone_uses_collectives;
    if (!asked && averages) f.scatter = f.over_replicas = pb::ReduceScatter::AVG;
    if (!asked) return f;
    f.scatter = *asked == sharding_.ranks ? pb::ReduceScatter::AVG : pb::ReduceScatter::PREMUL_SUM;
    if (f.scatter == pb::ReduceScatter::PREMUL_SUM) f.premultiply = 1 / *asked;
    return f;
  }
  const double factor = asked.value_or(ranks);
  if (overflows) f.before = DivisorBeforeSum(factor);
  f.after = factor / f.before;
  return f;
}

void Fsdp2::PostBackward(int unit) {
  UnitState& s = states_[unit];
  s.group_training = Training::kPostBackward;
  Accumulate(unit);
  if (!backward_.reduces) {
    if (backward_.reshards) Reshard(unit);
    KeepAccumulated(unit);
    builder_.SetUnit(-1);
    return;
  }
  Collected collected = Collect(unit);
  if (backward_.reshards) Reshard(unit);
  if (!collected.tensors.empty() || !sharding_.behaviour.recycles_only_to_reduce) {
    RecycleReduceInputs();
  }
  if (!collected.tensors.empty()) {
    AwaitReduction(unit);
    Reduce(unit, std::move(collected));
  }
  builder_.SetUnit(-1);
}

// ---- without a reduction

// Where sums over micro-batches are kept apart from autograd's gradients: adds to them.
void Fsdp2::Accumulate(int unit) {
  UnitState& s = states_[unit];
  builder_.SetUnit(unit);
  for (size_t i = 0; i < s.gradients.size(); ++i) {
    if (!s.accumulated[i] || !s.gradients[i]) continue;
    eager_.Launch("add_", {&s.accumulated[i], &s.gradients[i]}, {&s.accumulated[i]});
    s.gradients[i].reset();
  }
}

// Gradients that are to be added up are kept in the dtype of the reduction.
void Fsdp2::KeepAccumulated(int unit) {
  UnitState& s = states_[unit];
  const bool apart = sharding_.behaviour.accumulates_apart;
  builder_.SetUnit(unit);
  for (size_t i = 0; i < s.gradients.size(); ++i) {
    Tensor& gradient = s.gradients[i];
    if (!gradient || gradient.dtype() == sharding_.reduce) continue;
    if (!apart && SizeOf(sharding_.reduce) <= SizeOf(sharding_.compute)) continue;
    Tensor sum = ops::CastGradient(eager_, gradient, sharding_.reduce);
    pb::Buffer& buffer = builder_.buffer(eager_.buffer(sum));
    buffer.set_category(pb::UNSHARDED_GRAD);
    buffer.set_unit(unit);
    gradient.reset();
    (apart ? s.accumulated[i] : gradient) = std::move(sum);
  }
}

// ---- reduction

Fsdp2::Collected Fsdp2::Collect(int unit) {
  UnitState& s = states_[unit];
  Collected collected;
  for (size_t i = 0; i < s.gradients.size(); ++i) {
    Tensor& gradient = s.accumulated[i] ? s.accumulated[i] : s.gradients[i];
    if (!gradient) continue;
    collected.tensors.push_back(std::move(gradient));
    collected.positions.push_back(static_cast<int>(i));
  }
  return collected;
}

// Compute waits for the reduction that still reads a kept input.
void Fsdp2::WaitForReduceInput(const ReduceInput& input) {
  builder_.SetUnit(builder_.buffer(input.buffer).unit());
  if (input.segment == builder_.plan().segments_size()) {
    builder_.WaitBeforeNext(sharding_.streams.compute, input.op);
    builder_.Issue(kHost, {}, {}).mutable_release();
  } else {  // of an earlier micro-batch
    pb::Op& wait = builder_.Issue(sharding_.streams.compute, {}, {});
    wait.mutable_stream_wait()->add_on(sharding_.streams.reduce);
  }
}

// Makes room for one more input: the oldest are waited for and dropped one by one.
void Fsdp2::RecycleReduceInputs() {
  while (static_cast<int>(reduce_inputs_.size()) >= sharding_.reduce_inputs) {
    WaitForReduceInput(reduce_inputs_.front());
    builder_.Free(reduce_inputs_.front().buffer);
    reduce_inputs_.pop_front();
  }
}

// At the end all are waited for before any is dropped.
void Fsdp2::DropReduceInputs() {
  for (const ReduceInput& input : reduce_inputs_) WaitForReduceInput(input);
  for (const ReduceInput& input : reduce_inputs_) builder_.Free(input.buffer);
  reduce_inputs_.clear();
}

// Gradients of parameters that are cut along another dimension than the first are copied to
// [rank][shard]. The library's loop variables hold the last original until the next one is copied.
void Fsdp2::SplitGradients(int unit, Collected& collected) {
  if (sharding_.ranks == 1) return;
  Tensor held;
  for (size_t i = 0; i < collected.tensors.size(); ++i) {
    const ShardedParameter& p = layouts_[unit].parameters[collected.positions[i]];
    if (p.shard_dim == 0) continue;
    Tensor& gradient = collected.tensors[i];
    Tensor split = eager_.Empty(gradient.dtype(), gradient.shape());
    eager_.Allocate(split);
    const BufferId buffer = eager_.buffer(split);
    builder_.buffer(buffer).set_category(pb::UNSHARDED_GRAD);
    builder_.buffer(buffer).set_unit(unit);
    pb::Op& op = builder_.Issue(sharding_.streams.compute, {eager_.buffer(gradient)}, {buffer});
    op.mutable_split_gradient()->set_elems(p.numel);
    op.mutable_split_gradient()->set_dtype(ToProto(gradient.dtype()));
    op.mutable_split_gradient()->set_parameter(p.parameter);
    held = std::move(gradient);
    gradient = std::move(split);
  }
}

// Compute waits for the unit's reduction in an earlier micro-batch, where the end of that one's
// backward did not, and drops what it has held.
void Fsdp2::AwaitReduction(int unit) {
  UnitState& s = states_[unit];
  if (s.reduced_on == kHost) return;
  builder_.SetUnit(unit);
  pb::Op& wait = builder_.Issue(sharding_.streams.compute, {}, {});
  wait.mutable_stream_wait()->add_on(s.reduced_on);
  s.reduced_on = kHost;
  if (s.all_reduced >= 0) builder_.Free(std::exchange(s.all_reduced, -1));
}

void Fsdp2::Reduce(int unit, Collected collected) {
  UnitState& s = states_[unit];
  const Streams& streams = sharding_.streams;
  builder_.SetUnit(unit);
  SplitGradients(unit, collected);
  std::vector<BufferId> gradients;
  std::vector<int> dtypes;
  int64_t elems_in = 0;
  int64_t elems = 0;
  for (size_t i = 0; i < collected.tensors.size(); ++i) {
    const ShardedParameter& p = layouts_[unit].parameters[collected.positions[i]];
    dtypes.push_back(ToProto(collected.tensors[i].dtype()));
    gradients.push_back(eager_.buffer(collected.tensors[i]));
    elems_in += p.numel;
    elems += p.padded_numel;
  }
  const BufferId input = builder_.Allocate(elems * sharding_.ranks * SizeOf(sharding_.reduce),
                                           pb::RS_INPUT, streams.compute);
  pb::Op& op = builder_.Issue(streams.compute, gradients, std::span(&input, 1));
  builder_.AddVersions(op);
  pb::ReduceCopyIn& copy = *op.mutable_reduce_copy_in();
  copy.set_elems_in(elems_in);
  copy.set_elems_out(elems * sharding_.ranks);
  copy.mutable_from()->Add(dtypes.begin(), dtypes.end());
  copy.set_to(ToProto(sharding_.reduce));
  builder_.WaitBeforeNext(streams.reduce, builder_.last_op());
  // With one rank nothing keeps the last, whatever the version.
  Tensor last = collected.tensors.back();
  collected.tensors.clear();
  if (!sharding_.behaviour.last_gradient_survives_reduction || IsAlone()) last.reset();

  const bool cast = sharding_.reduce != sharding_.original;
  const bool becomes_gradient =
      !cast && s.sharded_gradient < 0 && (sharding_.replicas == 1 || backward_.all_reduces);
  const BufferId output =
      builder_.Allocate(elems * SizeOf(sharding_.reduce),
                        becomes_gradient ? pb::SHARDED_GRAD : pb::RS_OUTPUT, streams.reduce);
  reduce_inputs_.push_back({input, builder_.plan().segments_size(), kNoOp});
  ReduceInto(output, elems);
  s.reduced_on = streams.reduce;
  if (sharding_.replicas > 1 && !backward_.all_reduces) {
    if (s.partial < 0) {
      s.partial = output;
    } else {
      AddReduced(s.partial, output, elems);
      builder_.Free(output);
    }
    return;
  }
  if (s.partial >= 0) AddReduced(output, s.partial, elems);
  StreamId stream = streams.reduce;
  if (sharding_.replicas > 1) {
    builder_.WaitBeforeNext(streams.all_reduce, builder_.last_op());
    AllReduce(output, elems);
    s.reduced_on = stream = streams.all_reduce;
  }
  if (factors_.after != 1) Divide(output, elems, factors_.after, stream);
  if (sharding_.offloads) {
    ToHost(unit, output, elems, collected.positions, stream);
  } else {
    Finalize(unit, output, elems, stream);
  }
  if (s.partial >= 0) builder_.Free(std::exchange(s.partial, -1));
}

// Reduces the input that was copied in last to this rank's `elems` elements.
void Fsdp2::ReduceInto(BufferId output, int64_t elems) {
  ReduceInput& input = reduce_inputs_.back();
  const StreamId stream = sharding_.streams.reduce;
  if (factors_.before != 1) {
    Divide(input.buffer, elems * sharding_.ranks, factors_.before, stream);
  }
  pb::Op& op = builder_.Issue(stream, {input.buffer}, {output});
  input.op = builder_.last_op();
  if (IsAlone()) {
    op.mutable_local_reduce()->set_elems(elems);
    op.mutable_local_reduce()->set_dtype(ToProto(sharding_.reduce));
    const double factor = sharding_.divide_factor.value_or(1);
    if (factor != 1) Divide(output, elems, factor, stream);
    return;
  }
  pb::ReduceScatter& reduce = *op.mutable_reduce_scatter();
  reduce.set_group(sharding_.reduce_group);
  reduce.set_elems_in(elems * sharding_.ranks);
  reduce.set_elems_out(elems);
  reduce.set_dtype(ToProto(sharding_.reduce));
  reduce.set_reduction(factors_.scatter);
  if (factors_.premultiply != 0) reduce.set_factor(factors_.premultiply);
}

void Fsdp2::Divide(BufferId buffer, int64_t elems, double divisor, StreamId stream) {
  DivideInPlace(builder_, buffer, elems, sharding_.reduce, divisor, stream);
}

void Fsdp2::AddReduced(BufferId to, BufferId from, int64_t elems) {
  pb::Op& op = builder_.Issue(sharding_.streams.reduce, {to, from}, {to});
  op.mutable_add_reduced()->set_elems(elems);
  op.mutable_add_reduced()->set_dtype(ToProto(sharding_.reduce));
}

void Fsdp2::AllReduce(BufferId buffer, int64_t elems) {
  AllReduceInPlace(builder_, buffer, elems, sharding_.reduce, sharding_.replicate_group,
                   factors_.over_replicas, sharding_.streams.all_reduce);
}

// The reduced shard in the original dtype: a cast, or itself under another name.
BufferId Fsdp2::InOriginalDType(BufferId output, int64_t elems, pb::Category category,
                                StreamId stream) {
  BufferId gradient = output;
  if (sharding_.reduce != sharding_.original) {
    gradient = builder_.Allocate(elems * SizeOf(sharding_.original), category, stream);
  }
  FinalizeGradient(builder_, output, gradient, sharding_.reduce, sharding_.original, stream);
  return gradient;
}

// The ranks whose part of a parameter has fewer elements than the first one's.
void Fsdp2::ListShorter(const ShardedParameter& p, BufferId buffer) {
  const Dims& shape = parameters_[p.parameter].shape();
  for (int rank = 1; rank < sharding_.ranks * sharding_.replicas; ++rank) {
    const int64_t numel = LocalNumel(shape, p.shard_dim, sharding_.ranks, rank % sharding_.ranks);
    if (numel == p.local_numel) continue;
    pb::RankBytes& other = *builder_.buffer(buffer).add_others();
    other.set_rank(rank);
    other.set_bytes(numel * SizeOf(sharding_.original));
  }
}

// Copies the shard of each gradient to the host, which waits for that at the end of the backward.
void Fsdp2::ToHost(int unit, BufferId output, int64_t elems, const std::vector<int>& positions,
                   StreamId stream) {
  const BufferId gradient = InOriginalDType(output, elems, pb::SHARDED_GRAD, stream);
  int64_t offset = 0;
  for (const int position : positions) {
    const ShardedParameter& p = layouts_[unit].parameters[position];
    const BufferId copy = builder_.Allocate(p.padded_numel * SizeOf(sharding_.original),
                                            pb::SHARDED_GRAD, sharding_.streams.host);
    builder_.buffer(copy).set_host(true);
    ListShorter(p, copy);
    pb::Op& op = builder_.Issue(stream, {gradient}, {copy});
    if (offset > 0) op.add_in_offsets(offset);
    op.mutable_copy_to_host()->set_elems(p.padded_numel);
    op.mutable_copy_to_host()->set_dtype(ToProto(sharding_.original));
    op.mutable_copy_to_host()->set_parameter(p.parameter);
    offset += p.padded_numel;
    // What the host waits for to add it ends after all copies before.
    to_host_op_ = AddOnHost(unit, position, copy) ? kNoOp : builder_.last_op();
  }
  if (gradient != output) builder_.Free(gradient);
  HoldOrFree(unit, output);
}

// What was sent between the replicas is held until the end of the backward.
void Fsdp2::HoldOrFree(int unit, BufferId output) {
  if (sharding_.replicas > 1) {
    states_[unit].all_reduced = output;
  } else {
    builder_.Free(output);
  }
}

// Adds a copy to the parameter's gradient of earlier micro-batches, which the host does by itself
// and at once: it waits. False where there is none yet and the copy becomes it.
bool Fsdp2::AddOnHost(int unit, int position, BufferId copy) {
  UnitState& s = states_[unit];
  s.host_gradients.resize(s.gradients.size(), -1);
  BufferId& sum = s.host_gradients[position];
  if (sum < 0) {
    sum = copy;
    gradients_.push_back({unit, copy, layouts_[unit].parameters[position].parameter});
    return false;
  }
  builder_.WaitBeforeNext(sharding_.streams.host, builder_.last_op());
  AddToGradient(builder_, copy, sum, sharding_.original, sharding_.streams.host);
  const OpId added = builder_.last_op();
  pb::Op& wait = builder_.Issue(kHost, {}, {});
  wait.mutable_release();
  wait.add_host_waits(added);
  builder_.Free(copy);
  return true;
}

// Makes the reduced shard the gradient in the original dtype, or adds it to the one that is there.
void Fsdp2::Finalize(int unit, BufferId output, int64_t elems, StreamId stream) {
  UnitState& s = states_[unit];
  const bool accumulates = s.sharded_gradient >= 0;
  BufferId gradient = output;
  if (sharding_.reduce != sharding_.original || !accumulates) {
    const pb::Category category = accumulates ? pb::RS_OUTPUT : pb::SHARDED_GRAD;
    gradient = InOriginalDType(output, elems, category, stream);
  }
  if (accumulates) {
    AddToGradient(builder_, gradient, s.sharded_gradient, sharding_.original, stream);
    if (gradient != output) builder_.Free(gradient);
  } else {
    s.sharded_gradient = gradient;
    gradients_.push_back({unit, gradient});
  }
  if (output != s.sharded_gradient) HoldOrFree(unit, output);
}

}  // namespace foreshard
