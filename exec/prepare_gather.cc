// What moves from the shards of a unit to its parameters.
#include <fmt/format.h>

#include "exec/prepare_parts.h"

namespace foreshard::exec {
namespace {

DType Type(pb::DType dtype) { return static_cast<DType>(dtype); }

StatusOr<Work> CopyIn(const OpContext& c) {
  ASSIGN_OR_RETURN(const int group, GroupOfGather(c.plan, c.segment, c.index));
  const int64_t slice = c.op.gather_copy_in().elems();
  const DType dtype = Type(c.op.gather_copy_in().dtype());
  return Concatenate(c, dtype, dtype, slice * c.shards.Member(group), slice);
}

// From [rank][parameter] to one buffer a parameter, of the ranks of the group that has gathered.
StatusOr<Work> CopyOut(const OpContext& c) {
  const pb::Unit& unit = c.plan.units(c.op.unit());
  const DType dtype = Type(c.op.copy_out().dtype());
  ASSIGN_OR_RETURN(const int group, GroupOfGather(c.plan, c.segment, c.index));
  const int64_t ranks = c.plan.groups(group).size();
  CopyElements copy{{dtype}, dtype, {}};
  if (unit.gathered_numel() * SizeOf(dtype) != c.buffer_bytes[c.op.in(0)]) {
    return InvalidPlan(fmt::format("reads {} elements from buffer {} of {} bytes",
                                   unit.gathered_numel(), c.op.in(0), c.buffer_bytes[c.op.in(0)]));
  }
  int64_t offset = 0;  // in a rank's slice
  for (int i = 0; i < unit.parameters_size(); ++i) {
    const int64_t whole = c.shards.padded_numel(unit.parameters(i)) * c.shards.ranks();
    const int64_t part = whole / ranks;
    copy.pieces.push_back({0, i, offset, 0, part, ranks, unit.gathered_numel() / ranks, part});
    offset += part;
  }
  return Work(std::move(copy));
}

// Each parameter's [rank][shard], all of its elements before `shard_dim` a run.
StatusOr<Work> Join(const OpContext& c) {
  const DType dtype = Type(c.op.join_shards().dtype());
  CopyElements copy{std::vector<DType>(c.op.in_size(), dtype), dtype, {}};
  int next = 0;
  int64_t moved = 0;
  for (const int p : c.plan.units(c.op.unit()).parameters()) {
    if (c.plan.parameters(p).shard_dim() == 0) continue;
    const ShardMap::Runs runs = c.shards.LocalRuns(p);
    for (int rank = 0; rank < c.shards.ranks() && next < c.op.in_size(); ++rank) {
      copy.pieces.push_back({next, next, rank * c.shards.padded_numel(p), rank * runs.numel,
                             runs.numel, runs.count, runs.numel, runs.step});
    }
    ++next;
    moved += c.shards.numel(p);
  }
  if (next != c.op.in_size() || next != c.op.out_size() || moved != c.op.join_shards().elems()) {
    return InvalidPlan(fmt::format(
        "joins {} parameters of {} elements, those of the unit that need it are {} of {}",
        c.op.in_size(), c.op.join_shards().elems(), next, moved));
  }
  return Work(std::move(copy));
}

StatusOr<Work> Keep(const OpContext& c) {
  const pb::KeepSlice& keep = c.op.keep_slice();
  const DType dtype = Type(keep.dtype());
  const int64_t member = c.shards.Member(keep.group());
  CopyElements copy{std::vector<DType>(c.op.in_size(), dtype), dtype, {}};
  int64_t moved = 0;
  for (int i = 0; i < c.op.in_size(); ++i) {
    const int64_t part =
        c.buffer_bytes[c.op.in(i)] / SizeOf(dtype) / c.plan.groups(keep.group()).size();
    copy.pieces.push_back({i, i, member * part, 0, part});
    moved += part;
  }
  if (c.op.in_size() != c.op.out_size() || moved != keep.elems()) {
    return InvalidPlan(fmt::format("keeps {} elements of {} parameters in {} buffers, expected {}",
                                   moved, c.op.in_size(), c.op.out_size(), keep.elems()));
  }
  return Work(std::move(copy));
}

StatusOr<Work> AllGather(const OpContext& c) {
  const pb::AllGather& gather = c.op.all_gather();
  const DType dtype = Type(gather.dtype());
  const bool is_in_place = c.op.in(0) == c.op.out(0);
  if (!is_in_place) RETURN_IF_ERROR(Holds(c, c.op.in(0), gather.elems_in(), dtype));
  return Work(GatherSlices{gather.group(), gather.elems_in(), dtype, is_in_place});
}

}  // namespace

// The nearest one: a buffer may be gathered by several groups in turn. What is copied out may have
// been gathered in an earlier segment.
StatusOr<int> GroupOfGather(const pb::Plan& plan, const pb::Segment& segment, int index) {
  const pb::Op& op = segment.ops(index);
  const int step = op.has_copy_out() ? -1 : 1;
  const int buffer = op.has_copy_out() ? op.in(0) : op.out(0);
  const auto fills = [&](const pb::Op& o) { return o.has_all_gather() && o.out(0) == buffer; };
  for (int i = index + step; 0 <= i && i < segment.ops_size(); i += step) {
    if (fills(segment.ops(i))) return segment.ops(i).all_gather().group();
  }
  for (const pb::Segment& other : plan.segments()) {
    for (const pb::Op& o : other.ops()) {
      if (op.has_copy_out() && fills(o)) return o.all_gather().group();
    }
  }
  return InvalidPlan(fmt::format("no all_gather fills buffer {}", buffer));
}

StatusOr<Work> GatherWorkOf(const OpContext& c) {
  const pb::Op& op = c.op;
  const auto copy = [&](pb::DType from, pb::DType to, int64_t elems) {
    return Concatenate(c, Type(from), Type(to), 0, elems);
  };
  switch (op.kind_case()) {
    case pb::Op::kCopyToDevice:
      return copy(op.copy_to_device().dtype(), op.copy_to_device().dtype(),
                  op.copy_to_device().elems());
    case pb::Op::kCastShard:
      return copy(op.cast_shard().from(), op.cast_shard().to(), op.cast_shard().elems());
    case pb::Op::kGatherCopyIn:
      return CopyIn(c);
    case pb::Op::kAllGather:
      return AllGather(c);
    case pb::Op::kCopyOut:
      return CopyOut(c);
    case pb::Op::kJoinShards:
      return Join(c);
    case pb::Op::kKeepSlice:
      return Keep(c);
    default:
      return copy(op.local_gather().dtype(), op.local_gather().dtype(), op.local_gather().elems());
  }
}

}  // namespace foreshard::exec
