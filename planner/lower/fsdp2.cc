#include "planner/lower/fsdp2.h"

namespace foreshard {

Fsdp2::Fsdp2(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
             std::vector<UnitLayout> layouts, const Sharding& sharding)
    : eager_(eager),
      builder_(eager.builder()),
      units_(units),
      layouts_(std::move(layouts)),
      sharding_(sharding),
      parameters_(graph.parameters.size()),
      place_(graph.parameters.size()),
      states_(units.size()) {
  for (size_t u = 0; u < units.size(); ++u) {
    // The root keeps its parameters after forward unless told otherwise: backward starts there.
    states_[u].reshards_after_forward =
        units[u].reshard_after_forward.value_or(!units[u].is_root).ranks != 1;
    const auto& parameters = layouts_[u].parameters;
    if (parameters.empty()) continue;
    builder_.plan()
        .mutable_units(static_cast<int>(u))
        ->set_reshard_after_forward(states_[u].reshards_after_forward);
    states_[u].gradients.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ShardedParameter& p = parameters[i];
      place_[p.parameter] = {static_cast<int>(u), static_cast<int>(i)};
      Tensor t = eager.External(-1, sharding.compute, graph.parameters[p.parameter].shape);
      if (!p.frozen) eager.MakeLeaf(t, p.parameter);
      parameters_[p.parameter] = std::move(t);
    }
  }
}

// ---- forward

void Fsdp2::BeginForward() {
  builder_.SetUnit(-1);
  if (IsAlone()) return;  // nothing will run on the streams that would wait
  // The gathers must see what the optimizer wrote.
  for (StreamId stream : {sharding_.streams.copy_in, sharding_.streams.gather}) {
    pb::Op& op = builder_.Issue(stream, {}, {});
    op.mutable_stream_wait()->add_on(sharding_.streams.compute);
  }
}

void Fsdp2::BeforeForward(int unit, std::span<Tensor*> args) {
  UnitState& s = states_[unit];
  if (!layouts_[unit].parameters.empty()) {
    if (!IsUnsharded(s)) {
      Gather(unit, pb::AllGather::REASON_FORWARD);
      CopyOut(unit, true);
    }
    eager_.MarkPoint(args, unit);
  }
}

void Fsdp2::AfterForward(int unit, std::span<Tensor* const> results) {
  UnitState& s = states_[unit];
  if (!layouts_[unit].parameters.empty()) {
    if (s.reshards_after_forward) Reshard(unit);
    s.forward_visits.push_back(static_cast<int>(forward_order_.size()));
    forward_order_.push_back(unit);
    for (Tensor* t : results) {
      if ((*t)->requires_grad) eager_.HookGradient(*t, unit);
    }
  }
  if (units_[unit].is_root) DropHeldGather();
}

// The shards in the compute dtype; dropped by the caller.
BufferId Fsdp2::Cast(std::span<const BufferId> shards, int64_t elems, StreamId stream) {
  const BufferId cast = builder_.Allocate(elems * SizeOf(sharding_.compute), pb::CAST, stream);
  pb::CastShard& op = *builder_.Issue(stream, shards, std::span(&cast, 1)).mutable_cast_shard();
  op.set_elems(elems);
  op.set_from(ToProto(sharding_.original));
  op.set_to(ToProto(sharding_.compute));
  return cast;
}

void Fsdp2::Gather(int unit, pb::AllGather::Reason reason) {
  UnitState& s = states_[unit];
  s.pending = true;
  if (IsAlone()) return;
  const UnitLayout& layout = layouts_[unit];
  const Streams& streams = sharding_.streams;
  builder_.SetUnit(unit);
  std::vector<BufferId> source;
  for (const ShardedParameter& p : layout.parameters) source.push_back(p.shard);
  BufferId cast = -1;
  if (sharding_.compute != sharding_.original) {
    cast = Cast(source, layout.padded_numel, streams.copy_in);
    source.assign(1, cast);
  }
  const int64_t gathered = layout.padded_numel * sharding_.ranks;
  s.gathered =
      builder_.Allocate(gathered * SizeOf(sharding_.compute), pb::AG_OUTPUT, streams.copy_in);
  pb::Op& copy = builder_.Issue(streams.copy_in, source, std::span(&s.gathered, 1));
  copy.mutable_gather_copy_in()->set_elems(layout.padded_numel);
  copy.mutable_gather_copy_in()->set_dtype(ToProto(sharding_.compute));
  builder_.WaitBeforeNext(streams.gather, builder_.last_op());
  pb::Op& op = builder_.Issue(streams.gather, {s.gathered}, {s.gathered});
  pb::AllGather& gather = *op.mutable_all_gather();
  gather.set_group(sharding_.group);
  gather.set_elems_in(layout.padded_numel);
  gather.set_elems_out(gathered);
  gather.set_dtype(ToProto(sharding_.compute));
  gather.set_reason(reason);
  s.gather_op = builder_.last_op();
  if (cast >= 0) builder_.Free(cast);
}

void Fsdp2::DropHeldGather() {
  if (held_gather_ < 0) return;
  builder_.WaitBeforeNext(sharding_.streams.copy_in, held_copy_out_);
  builder_.WaitBeforeNext(sharding_.streams.gather, held_copy_out_);
  builder_.SetUnit(-1);
  builder_.Issue(kHost, {}, {}).mutable_release();
  builder_.Free(held_gather_);
  held_gather_ = -1;
}

BufferId Fsdp2::NewUnsharded(int unit, const ShardedParameter& p) {
  const int64_t bytes = p.padded_numel * sharding_.ranks * SizeOf(sharding_.compute);
  const BufferId b = builder_.Allocate(bytes, pb::UNSHARDED_PARAM, sharding_.streams.compute);
  states_[unit].unsharded.push_back(b);
  eager_.Rebind(parameters_[p.parameter], b);
  return b;
}

// In a group of one rank the library's loop over parameters casts and copies each where others copy
// out. Its variable holds a cast until the next one has been made.
void Fsdp2::CopyLocally(int unit) {
  const StreamId stream = sharding_.streams.compute;
  builder_.SetUnit(unit);
  BufferId held = -1;
  for (const ShardedParameter& p : layouts_[unit].parameters) {
    BufferId source = p.shard;
    if (sharding_.compute != sharding_.original) {
      source = Cast(std::span(&source, 1), p.padded_numel, stream);
      if (held >= 0) builder_.Free(held);
      held = source;
    }
    pb::Op& op = builder_.Issue(stream, {source}, {NewUnsharded(unit, p)});
    op.mutable_local_gather()->set_elems(p.padded_numel);
    op.mutable_local_gather()->set_dtype(ToProto(sharding_.compute));
  }
  if (held >= 0) builder_.Free(held);
}

void Fsdp2::CopyOut(int unit, bool in_forward) {
  UnitState& s = states_[unit];
  s.pending = false;
  if (IsAlone()) return CopyLocally(unit);
  const UnitLayout& layout = layouts_[unit];
  if (sharding_.behaviour.drops_previous_gather_first) DropHeldGather();
  builder_.SetUnit(unit);
  for (const ShardedParameter& p : layout.parameters) NewUnsharded(unit, p);
  builder_.WaitBeforeNext(sharding_.streams.compute, s.gather_op);
  pb::Op& op = builder_.Issue(sharding_.streams.compute, std::span(&s.gathered, 1), s.unsharded);
  op.mutable_copy_out()->set_elems(layout.padded_numel * sharding_.ranks);
  op.mutable_copy_out()->set_dtype(ToProto(sharding_.compute));
  const OpId copy_out = builder_.last_op();
  if (in_forward) {
    DropHeldGather();  // of the unit before, where it was not dropped first
    held_gather_ = s.gathered;
    held_copy_out_ = copy_out;
  } else {
    builder_.WaitBeforeNext(sharding_.streams.copy_in, copy_out);
    builder_.WaitBeforeNext(sharding_.streams.gather, copy_out);
    builder_.Free(s.gathered);
  }
  s.gathered = -1;
}

void Fsdp2::Reshard(int unit) {
  UnitState& s = states_[unit];
  if (!IsUnsharded(s)) return;
  builder_.SetUnit(unit);
  builder_.Issue(kHost, {}, {}).mutable_reshard();
  for (BufferId b : s.unsharded) builder_.Free(b);
  s.unsharded.clear();
}

// ---- backward

void Fsdp2::BeforeNode(int unit) {
  UnitState& s = states_[unit];
  if (s.in_backward) return;
  s.in_backward = true;
  if (!IsUnsharded(s)) {
    if (!s.pending) Gather(unit, pb::AllGather::REASON_BACKWARD);
    CopyOut(unit, false);
  }
  PrefetchBefore(unit);
}

// Gathers the unit whose forward ended just before this one's.
void Fsdp2::PrefetchBefore(int unit) {
  UnitState& s = states_[unit];
  if (s.forward_visits.empty()) return;
  const int position = s.forward_visits.back() - 1;
  s.forward_visits.pop_back();
  if (position < 0) return;
  const int target = forward_order_[position];
  if (!IsUnsharded(states_[target]) && !states_[target].pending) {
    Gather(target, pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
  }
}

void Fsdp2::ParameterGradient(int parameter, Tensor gradient, bool summed) {
  const auto [unit, position] = place_[parameter];
  const BufferId id = eager_.buffer(gradient);
  pb::Buffer& buffer = builder_.buffer(id);
  buffer.set_logits(false);
  buffer.set_unit(unit);
  if (summed) {
    builder_.Settle(id, pb::UNSHARDED_GRAD);
  } else {
    buffer.set_category(pb::UNSHARDED_GRAD);
  }
  states_[unit].gradients[position] = std::move(gradient);
}

void Fsdp2::AtPoint(int unit) { PostBackward(unit); }

void Fsdp2::PostBackward(int unit) {
  states_[unit].reduced = true;
  Reshard(unit);
  Reduce(unit);
  builder_.SetUnit(-1);
}

// Compute waits for the reduction that still reads the kept input, then the input is dropped.
void Fsdp2::RecycleReduceInput() {
  if (reduce_input_ < 0) return;
  builder_.WaitBeforeNext(sharding_.streams.compute, reduce_op_);
  const int owner = builder_.buffer(reduce_input_).unit();
  builder_.SetUnit(owner);
  builder_.Issue(kHost, {}, {}).mutable_release();
  builder_.Free(reduce_input_);
  reduce_input_ = -1;
}

void Fsdp2::Reduce(int unit) {
  UnitState& s = states_[unit];
  RecycleReduceInput();
  builder_.SetUnit(unit);
  std::vector<BufferId> gradients;
  int64_t elems_in = 0;
  int64_t elems_out = 0;
  std::vector<int> dtypes;
  Tensor last;
  for (size_t i = 0; i < s.gradients.size(); ++i) {
    if (!s.gradients[i]) continue;
    dtypes.push_back(ToProto(s.gradients[i].dtype()));
    gradients.push_back(eager_.buffer(s.gradients[i]));
    elems_in += layouts_[unit].parameters[i].numel;
    elems_out += layouts_[unit].parameters[i].padded_numel;
    last = s.gradients[i];
  }
  if (gradients.empty()) return;
  elems_out *= sharding_.ranks;
  reduce_input_ = builder_.Allocate(elems_out * SizeOf(sharding_.reduce), pb::RS_INPUT,
                                    sharding_.streams.compute);
  pb::Op& op = builder_.Issue(sharding_.streams.compute, gradients, std::span(&reduce_input_, 1));
  builder_.AddVersions(op);
  pb::ReduceCopyIn& copy = *op.mutable_reduce_copy_in();
  copy.set_elems_in(elems_in);
  copy.set_elems_out(elems_out);
  copy.mutable_from()->Add(dtypes.begin(), dtypes.end());
  copy.set_to(ToProto(sharding_.reduce));
  for (Tensor& g : s.gradients) g.reset();
  // With one rank nothing keeps it, whatever the version.
  if (!sharding_.behaviour.last_gradient_survives_reduction || IsAlone()) last.reset();
  builder_.WaitBeforeNext(sharding_.streams.reduce, builder_.last_op());
  const int64_t elems = elems_out / sharding_.ranks;
  const bool cast = sharding_.reduce != sharding_.original;
  const BufferId output =
      builder_.Allocate(elems * SizeOf(sharding_.reduce), cast ? pb::RS_OUTPUT : pb::SHARDED_GRAD,
                        sharding_.streams.reduce);
  reduce_op_ = ReduceInto(output, elems);
  Finalize(unit, output, elems);
}

// Reduces the input that was copied in last to this rank's `elems` elements.
OpId Fsdp2::ReduceInto(BufferId output, int64_t elems) {
  pb::Op& op = builder_.Issue(sharding_.streams.reduce, {reduce_input_}, {output});
  if (IsAlone()) {
    op.mutable_local_reduce()->set_elems(elems);
    op.mutable_local_reduce()->set_dtype(ToProto(sharding_.reduce));
    return builder_.last_op();
  }
  pb::ReduceScatter& reduce = *op.mutable_reduce_scatter();
  reduce.set_group(sharding_.group);
  reduce.set_elems_in(elems * sharding_.ranks);
  reduce.set_elems_out(elems);
  reduce.set_dtype(ToProto(sharding_.reduce));
  reduce.set_reduction(pb::ReduceScatter::AVG);
  return builder_.last_op();
}

// Makes the reduced shard the gradient, in the original dtype.
void Fsdp2::Finalize(int unit, BufferId output, int64_t elems) {
  const StreamId stream = sharding_.streams.reduce;
  const bool cast = sharding_.reduce != sharding_.original;
  BufferId gradient = output;
  if (cast) {
    gradient = builder_.Allocate(elems * SizeOf(sharding_.original), pb::SHARDED_GRAD, stream);
  }
  pb::GradFinalize& finalize =
      *builder_.Issue(stream, {output}, {gradient}).mutable_grad_finalize();
  finalize.set_from(ToProto(sharding_.reduce));
  finalize.set_to(ToProto(sharding_.original));
  if (cast) builder_.Free(output);
  gradients_.push_back({unit, gradient});
}

// Units that no gradient reached at their inputs are reduced now, in named_modules order; then
// compute waits for the reductions.
void Fsdp2::AtEnd() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!states_[u].reduced && !layouts_[u].parameters.empty()) PostBackward(static_cast<int>(u));
  }
  builder_.SetUnit(-1);
  pb::Op& op = builder_.Issue(sharding_.streams.compute, {}, {});
  op.mutable_stream_wait()->add_on(sharding_.streams.reduce);
  RecycleReduceInput();
}

}  // namespace foreshard
