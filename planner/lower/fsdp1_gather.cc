// How a flat parameter is gathered and given back.
#include "planner/lower/fsdp1.h"
#include "planner/lower/shard_ops.h"

namespace foreshard {
namespace {

// Gathers whose parameters have not been given back on the device, before the host waits: the
// library's _FreeEventQueue._max_num_inflight_all_gathers.
constexpr size_t kMostInFlight = 2;

}  // namespace

// _unshard: asks for the unit's parameters. What comes before the gather is issued before the host
// waits, and the host waits for a place in the queue even where nothing is to be gathered.
void Fsdp1::Unshard(int unit, pb::AllGather::Reason reason) {
  UnitState& s = states_[unit];
  builder_.SetUnit(unit);
  const bool gathers = IsSharded() && !s.is_unsharded;
  s.uses_shard = false;
  if (gathers || !IsSharded() || offloads()) PreUnshard(unit);
  if (gathers) {
    Gather(unit, reason);
  } else if (MustAwaitFree()) {
    pb::Op& op = builder_.Issue(kHost, {}, {});
    op.mutable_release();
    AwaitFree(op);
  }
  if (s.training == Training::kForward) UseViews(unit);
  if (IsSharded()) FreeCast(unit, sharding_.streams.gather);
}

// What is gathered, where it is not the shard itself. A shard on the host is copied for every
// unshard, also where the parameters are there.
void Fsdp1::PreUnshard(int unit) {
  UnitState& s = states_[unit];
  const UnitLayout& layout = layouts_[unit];
  if (!IsMixed() && !offloads()) return;
  BufferId shard = layout.flat->shard;
  const StreamId stream = sharding_.streams.copy_in;
  const int64_t elems = layout.padded_numel;
  if (offloads()) {
    shard = s.cast = CopyShardToDevice(builder_, shard, elems, sharding_.original, stream);
  }
  if (IsMixed()) {
    s.cast = CastShards(builder_, std::span(&shard, 1), elems, sharding_.original,
                        sharding_.compute, stream);
    if (offloads()) builder_.Free(shard);
  }
  copy_op_ = builder_.last_op();
  if (!IsSharded()) return eager_.Rebind(s.flat, s.cast);
  builder_.WaitBeforeNext(sharding_.streams.gather, copy_op_);
}

bool Fsdp1::MustAwaitFree() const { return frees_.size() >= kMostInFlight; }

// The host waits for the oldest free.
void Fsdp1::AwaitFree(pb::Op& op) {
  const Free free = frees_.front();
  frees_.pop_front();
  pb::EventWait& wait = *op.add_event_waits();
  wait.set_event(states_[free.unit].event);
  wait.set_back(states_[free.unit].records - 1 - free.record);
}

void Fsdp1::Gather(int unit, pb::AllGather::Reason reason) {
  UnitState& s = states_[unit];
  const UnitLayout& layout = layouts_[unit];
  const StreamId stream = sharding_.streams.gather;
  const int64_t elems = layout.padded_numel * sharding_.ranks;
  if (s.unsharded < 0) {
    s.unsharded = builder_.Allocate(elems * SizeOf(sharding_.compute), pb::UNSHARDED_PARAM, stream);
    builder_.buffer(s.unsharded).add_recorded_on(sharding_.streams.compute);
    eager_.Rebind(s.flat, s.unsharded);
  } else {
    builder_.Revive(s.unsharded);
  }
  s.is_unsharded = true;
  const BufferId shard = s.cast >= 0 ? s.cast : layout.flat->shard;
  pb::Op& op = builder_.Issue(stream, {shard}, {s.unsharded});
  pb::AllGather& gather = *op.mutable_all_gather();
  gather.set_group(sharding_.gather_group);
  gather.set_elems_in(layout.padded_numel);
  gather.set_elems_out(elems);
  gather.set_dtype(ToProto(sharding_.compute));
  gather.set_reason(reason);
  if (MustAwaitFree()) AwaitFree(op);
  gather_op_ = builder_.last_op();
}

// The parameters as views of the flat one, which is one autograd node: it runs before whatever
// the forward recorded earlier.
void Fsdp1::UseViews(int unit) {
  const UnitState& s = states_[unit];
  const FlatLayout& flat = *layouts_[unit].flat;
  std::vector<Tensor*> views;
  for (const ShardedParameter& p : layouts_[unit].parameters) {
    const Dims& shape = graph_.parameters[p.parameter].shape;
    Tensor& view = parameters_[p.parameter];
    view = eager_.View(s.flat, shape, ContiguousStrides(shape), p.flat_offset);
    views.push_back(&view);
  }
  if (flat.frozen) return;
  Tensor leaf = eager_.View(s.flat, {flat.numel}, {1}, 0);
  eager_.MakeLeaf(leaf, LeafOf(unit));
  eager_.SplitLeaf(leaf, views, unit);
}

// A change of the flat parameter's dtype gives it a new gradient accumulator, so that the gradient
// of every use is one of its own; otherwise they are added up before.
int Fsdp1::LeafOf(int unit) {
  UnitState& s = states_[unit];
  if (s.last_leaf == kNone || IsMixed() || offloads()) {
    s.last_leaf = static_cast<int>(leaf_units_.size());
    leaf_units_.push_back(unit);
  }
  return s.last_leaf;
}

// Compute waits for the last gather, and for copies that nothing was gathered from.
void Fsdp1::WaitForUnshard() {
  const StreamId compute = sharding_.streams.compute;
  if (copy_op_ > gather_op_) builder_.WaitBeforeNext(compute, copy_op_);
  builder_.WaitBeforeNext(compute, gather_op_);
  gather_op_ = copy_op_ = kNoOp;
}

// _reshard
void Fsdp1::Reshard(int unit, bool frees) {
  UnitState& s = states_[unit];
  builder_.SetUnit(unit);
  s.prefetched = false;
  s.uses_shard = true;
  if (frees && (s.is_unsharded || !options_.no_limit_all_gathers())) {
    pb::Op& op = builder_.Issue(kHost, {}, {});
    op.mutable_reshard();
    if (!options_.no_limit_all_gathers()) RecordFree(unit, op);
    if (s.is_unsharded) builder_.Free(s.unsharded);
    s.is_unsharded = false;
  }
  if (!IsSharded() && s.cast >= 0) {
    builder_.Issue(kHost, {}, {}).mutable_reshard();
    FreeCast(unit, sharding_.streams.compute);
  }
}

void Fsdp1::RecordFree(int unit, pb::Op& op) {
  UnitState& s = states_[unit];
  if (s.event == kNone) {
    s.event = builder_.plan().events_size();
    builder_.plan().add_events()->set_name("free " + units_[unit].name);
  }
  op.set_record(s.event);
  op.set_record_stream(sharding_.streams.compute);
  frees_.push_back({unit, s.records++});
}

void Fsdp1::FreeCast(int unit, StreamId used_on) {
  UnitState& s = states_[unit];
  if (s.cast < 0) return;
  builder_.buffer(s.cast).add_recorded_on(used_on);
  builder_.Free(std::exchange(s.cast, -1));
}

}  // namespace foreshard
