// How a unit's parameters are gathered and given back.
#include "planner/lower/fsdp2.h"
#include "planner/lower/shard_ops.h"

namespace foreshard {

BufferId Fsdp2::Cast(std::span<const BufferId> shards, int64_t elems, DType from, StreamId stream) {
  return CastShards(builder_, shards, elems, from, sharding_.compute, stream);
}

BufferId Fsdp2::ToDevice(const ShardedParameter& p, StreamId stream) {
  return CopyShardToDevice(builder_, p.shard, p.padded_numel, sharding_.original, stream);
}

// What the rank's slice of the gather output is copied from, in the compute dtype: the shards, or
// copies that the caller frees once the gather has been issued (`temporary`).
std::vector<BufferId> Fsdp2::GatherSources(int unit, StreamId stream,
                                           std::vector<BufferId>& temporary) {
  const UnitState& s = states_[unit];
  const UnitLayout& layout = layouts_[unit];
  const bool casts = sharding_.compute != sharding_.original;
  std::vector<BufferId> sources;
  if (sharding_.offloads && s.slices.empty()) {  // one by one
    for (const ShardedParameter& p : layout.parameters) {
      BufferId source = ToDevice(p, stream);
      if (casts) {
        const BufferId narrow =
            Cast(std::span(&source, 1), p.padded_numel, sharding_.original, stream);
        builder_.Free(source);
        source = narrow;
      }
      sources.push_back(source);
    }
    temporary = sources;
    return sources;
  }
  for (const ShardedParameter& p : layout.parameters) sources.push_back(p.shard);
  int64_t elems = layout.padded_numel;
  if (!s.slices.empty()) {
    sources = s.slices;
    elems = layout.padded_numel * sharding_.ranks / rules_[unit].reshard_to;
  }
  if (!casts) return sources;
  // The library copies slices into another buffer although they are of the compute dtype already.
  const DType from = s.slices.empty() ? sharding_.original : sharding_.compute;
  temporary = {Cast(sources, elems, from, stream)};
  return temporary;
}

// Asks for the unit's parameters, unless they are there or on their way.
void Fsdp2::Unshard(int unit, pb::AllGather::Reason reason) {
  UnitState& s = states_[unit];
  if (s.pending || s.is_unsharded) return;
  if (!rules_[unit].gathers_in_backward && s.group_training == Training::kPreBackward) return;
  s.pending = true;
  if (IsAlone()) return;
  const Streams& streams = sharding_.streams;
  builder_.SetUnit(unit);
  if (!s.slices.empty()) {
    builder_.WaitBeforeNext(streams.copy_in, s.slice_op);
    builder_.WaitBeforeNext(streams.gather, s.slice_op);
  }
  std::vector<BufferId> temporary;
  const std::vector<BufferId> sources = GatherSources(unit, streams.copy_in, temporary);
  const int64_t gathered = layouts_[unit].padded_numel * sharding_.ranks;
  const int64_t part = gathered / (s.slices.empty() ? sharding_.ranks : rules_[unit].reshard_to);
  s.gathered =
      builder_.Allocate(gathered * SizeOf(sharding_.compute), pb::AG_OUTPUT, streams.copy_in);
  pb::Op& copy = builder_.Issue(streams.copy_in, sources, std::span(&s.gathered, 1));
  copy.mutable_gather_copy_in()->set_elems(part);
  copy.mutable_gather_copy_in()->set_dtype(ToProto(sharding_.compute));
  builder_.WaitBeforeNext(streams.gather, builder_.last_op());
  pb::Op& op = builder_.Issue(streams.gather, {s.gathered}, {s.gathered});
  pb::AllGather& gather = *op.mutable_all_gather();
  gather.set_group(s.slices.empty() ? sharding_.gather_group : rules_[unit].reshard_group);
  gather.set_elems_in(part);
  gather.set_elems_out(gathered);
  gather.set_dtype(ToProto(sharding_.compute));
  gather.set_reason(reason);
  s.gather_op = builder_.last_op();
  s.gather_segment = builder_.plan().segments_size();
  for (BufferId b : temporary) builder_.Free(b);
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

// The next op allocates the unit's unsharded parameters: storages that are resized, not made anew.
void Fsdp2::NameUnsharded(int unit) {
  UnitState& s = states_[unit];
  s.is_unsharded = true;
  if (!s.unsharded.empty()) {
    for (BufferId b : s.unsharded) builder_.Revive(b);
    return;
  }
  for (const ShardedParameter& p : layouts_[unit].parameters) {
    const int64_t bytes = p.padded_numel * sharding_.ranks * SizeOf(sharding_.compute);
    const BufferId b = builder_.Allocate(bytes, pb::UNSHARDED_PARAM, sharding_.streams.compute);
    s.unsharded.push_back(b);
    eager_.Rebind(parameters_[p.parameter], b);
  }
}

// In a group of one rank the library's loop over parameters casts and copies each where others copy
// out. Its variable holds a cast until the next one has been made.
void Fsdp2::CopyLocally(int unit) {
  UnitState& s = states_[unit];
  const StreamId stream = sharding_.streams.compute;
  builder_.SetUnit(unit);
  const bool first = s.unsharded.empty();
  s.is_unsharded = true;
  BufferId held = -1;
  for (size_t i = 0; i < layouts_[unit].parameters.size(); ++i) {
    const ShardedParameter& p = layouts_[unit].parameters[i];
    BufferId source = p.shard;
    BufferId copy = -1;
    if (sharding_.offloads) copy = source = ToDevice(p, stream);
    if (sharding_.compute != sharding_.original) {
      source = Cast(std::span(&source, 1), p.padded_numel, sharding_.original, stream);
      if (copy >= 0) builder_.Free(copy);
      copy = source;
    }
    if (held >= 0) builder_.Free(held);
    held = copy;
    if (first) {
      const int64_t bytes = p.padded_numel * SizeOf(sharding_.compute);
      s.unsharded.push_back(builder_.Allocate(bytes, pb::UNSHARDED_PARAM, stream));
      eager_.Rebind(parameters_[p.parameter], s.unsharded[i]);
    } else {
      builder_.Revive(s.unsharded[i]);
    }
    pb::Op& op = builder_.Issue(stream, {source}, {s.unsharded[i]});
    op.mutable_local_gather()->set_elems(p.padded_numel);
    op.mutable_local_gather()->set_dtype(ToProto(sharding_.compute));
  }
  if (held >= 0) builder_.Free(held);
}

// Copies out what was gathered. In forward the gather output is held until the next copy-out, so
// that the next gather can run meanwhile.
void Fsdp2::WaitForUnshard(int unit) {
  UnitState& s = states_[unit];
  if (!s.pending) return;
  s.pending = false;
  if (IsAlone()) return CopyLocally(unit);
  const bool forward = s.group_training == Training::kForward;
  const bool drops_first = sharding_.behaviour.drops_previous_gather_first;
  if (forward && drops_first) DropHeldGather();
  CopyOut(unit);
  const OpId copy_out = builder_.last_op();
  for (BufferId b : s.slices) builder_.Free(b);
  s.slices.clear();
  if (forward) {
    DropHeldGather();
    held_gather_ = s.gathered;
    held_copy_out_ = copy_out;
  } else {
    builder_.WaitBeforeNext(sharding_.streams.copy_in, copy_out);
    builder_.WaitBeforeNext(sharding_.streams.gather, copy_out);
    builder_.Free(s.gathered);
  }
  s.gathered = -1;
}

void Fsdp2::CopyOut(int unit) {
  UnitState& s = states_[unit];
  const UnitLayout& layout = layouts_[unit];
  builder_.SetUnit(unit);
  NameUnsharded(unit);
  std::vector<BufferId> out = s.unsharded;
  std::vector<BufferId> joined;  // [rank][shard] of parameters that are cut along another dimension
  for (size_t i = 0; i < out.size(); ++i) {
    const ShardedParameter& p = layout.parameters[i];
    if (p.shard_dim == 0) continue;
    const int64_t bytes = p.padded_numel * sharding_.ranks * SizeOf(sharding_.compute);
    joined.push_back(out[i] = builder_.Allocate(bytes, pb::TEMP, sharding_.streams.compute));
  }
  AwaitGather(unit);
  pb::Op& op = builder_.Issue(sharding_.streams.compute, std::span(&s.gathered, 1), out);
  op.mutable_copy_out()->set_elems(layout.padded_numel * sharding_.ranks);
  op.mutable_copy_out()->set_dtype(ToProto(sharding_.compute));
  if (!joined.empty()) JoinShards(unit, joined);
}

// Compute waits for the unit's gather before its next op.
void Fsdp2::AwaitGather(int unit) {
  const UnitState& s = states_[unit];
  if (s.gather_segment == builder_.plan().segments_size()) {
    return builder_.WaitBeforeNext(sharding_.streams.compute, s.gather_op);
  }
  // Of an earlier micro-batch, whose backward has asked for more than it used.
  pb::Op& wait = builder_.Issue(sharding_.streams.compute, {}, {});
  wait.mutable_stream_wait()->add_on(sharding_.streams.gather);
}

void Fsdp2::JoinShards(int unit, std::span<const BufferId> gathered) {
  const UnitState& s = states_[unit];
  std::vector<BufferId> out;
  int64_t elems = 0;
  for (size_t i = 0; i < s.unsharded.size(); ++i) {
    const ShardedParameter& p = layouts_[unit].parameters[i];
    if (p.shard_dim == 0) continue;
    out.push_back(s.unsharded[i]);
    elems += p.padded_numel * sharding_.ranks;
  }
  pb::Op& op = builder_.Issue(sharding_.streams.compute, gathered, out);
  op.mutable_join_shards()->set_elems(elems);
  op.mutable_join_shards()->set_dtype(ToProto(sharding_.compute));
  for (BufferId b : gathered) builder_.Free(b);
}

// Gives the memory of the unsharded parameters back, or in forward what the unit's rule says.
void Fsdp2::Reshard(int unit) {
  UnitState& s = states_[unit];
  if (s.group_training == Training::kForward) {
    const int ranks = rules_[unit].reshard_to;
    if (ranks == 1 || !s.is_unsharded) return;
    return ranks > 1 ? KeepSlices(unit) : FreeUnsharded(unit);
  }
  FreeUnsharded(unit);
  if (s.slices.empty()) return;
  builder_.SetUnit(unit);
  builder_.Issue(kHost, {}, {}).mutable_release();
  for (BufferId b : s.slices) builder_.Free(b);
  s.slices.clear();
}

// Parameter by parameter: its slice is copied, then the whole is given back.
void Fsdp2::KeepSlices(int unit) {
  UnitState& s = states_[unit];
  const StreamId stream = sharding_.streams.compute;
  builder_.SetUnit(unit);
  for (size_t i = 0; i < s.unsharded.size(); ++i) {
    const int64_t elems =
        layouts_[unit].parameters[i].padded_numel * sharding_.ranks / rules_[unit].reshard_to;
    const BufferId slice =
        builder_.Allocate(elems * SizeOf(sharding_.compute), pb::POST_FORWARD_SHARD, stream);
    pb::KeepSlice& op = *builder_.Issue(stream, {s.unsharded[i]}, {slice}).mutable_keep_slice();
    op.set_group(rules_[unit].reshard_group);
    op.set_elems(elems);
    op.set_dtype(ToProto(sharding_.compute));
    s.slices.push_back(slice);
    builder_.Free(s.unsharded[i]);
  }
  s.slice_op = builder_.last_op();
  s.is_unsharded = false;
}

void Fsdp2::FreeUnsharded(int unit) {
  UnitState& s = states_[unit];
  if (!s.is_unsharded) return;
  builder_.SetUnit(unit);
  builder_.Issue(kHost, {}, {}).mutable_reshard();
  for (BufferId b : s.unsharded) builder_.Free(b);
  s.is_unsharded = false;
}

}  // namespace foreshard
