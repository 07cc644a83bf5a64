#include "tests/small_world/mutants.h"

#include <algorithm>
#include <string>

#include "proto/base/check.h"

namespace foreshard {
namespace {

using Indices = google::protobuf::RepeatedField<int32_t>;

void Erase(Indices& list, int index) { list.erase(list.begin() + index); }

// Ops after `op` move up by one; waits for it are gone.
void RenumberWithout(Indices& waits, int op) {
  waits.erase(std::remove(waits.begin(), waits.end(), op), waits.end());
  for (int32_t& wait : waits) wait -= wait > op;
}

void EraseOp(pb::Segment& segment, int op) {
  segment.mutable_ops()->DeleteSubrange(op, 1);
  for (pb::Op& o : *segment.mutable_ops()) {
    RenumberWithout(*o.mutable_waits(), op);
    RenumberWithout(*o.mutable_host_waits(), op);
  }
}

// The work is gone, the memory is not: a neighbour allocates and frees it.
void EraseWork(pb::Segment& segment, int op) {
  const pb::Op gone = segment.ops(op);
  const bool last = op + 1 == segment.ops_size();
  pb::Op& neighbour = *segment.mutable_ops(last ? op - 1 : op + 1);
  neighbour.mutable_allocs()->MergeFrom(gone.allocs());
  neighbour.mutable_frees()->MergeFrom(gone.frees());
  EraseOp(segment, op);
}

void Swap(pb::Segment& segment, int op) {
  segment.mutable_ops()->SwapElements(op, op + 1);
  const auto renumber = [op](Indices& waits) {
    for (int32_t& wait : waits) wait = wait == op ? op + 1 : wait == op + 1 ? op : wait;
  };
  for (pb::Op& o : *segment.mutable_ops()) {
    renumber(*o.mutable_waits());
    renumber(*o.mutable_host_waits());
  }
}

void EraseGather(pb::Segment& segment, int op) {
  const int32_t unit = segment.ops(op).unit();
  EraseWork(segment, op);
  for (int i = op - 1; i >= 0 && segment.ops(i).unit() == unit; --i) {
    if (!segment.ops(i).has_gather_copy_in() && !segment.ops(i).has_cast_shard()) break;
    EraseWork(segment, i);
  }
}

// An element of the smallest type that a plan names may be a byte.
int64_t ElementOf(const pb::Buffer& buffer) { return buffer.bytes() % 4 == 0 ? 4 : 2; }

pb::Category NextCategory(pb::Category category) {
  return static_cast<pb::Category>(category == pb::WORKSPACE ? 1 : category + 1);
}

bool IsFlat(const pb::Plan& plan, const pb::Op& op) {
  return op.has_unit() && plan.units(op.unit()).has_flat();
}

// A sum over ranks and a division of it are the same mean in either order, rounded another way.
bool SwapsMean(const pb::Segment& segment, int op) {
  if (op + 1 == segment.ops_size()) return false;
  const pb::Op& a = segment.ops(op);
  const pb::Op& b = segment.ops(op + 1);
  return (a.has_divide() && b.has_all_reduce()) || (a.has_all_reduce() && b.has_divide());
}

int Places(const pb::Plan& plan, const pb::Op& op, Mutation mutation, bool first, bool last) {
  switch (mutation) {
    case Mutation::kDropWait:
      return op.waits_size();
    case Mutation::kDropStreamWait:
      return op.has_stream_wait();
    case Mutation::kDropGather:
      return op.has_all_gather() || op.has_local_gather();
    case Mutation::kDropCopyOut:
      return op.has_copy_out();
    case Mutation::kDropReshard:
      return op.has_reshard();
    case Mutation::kDropReduceCopyIn:
      return op.has_reduce_copy_in();
    case Mutation::kDropReduceScatter:
      return op.has_reduce_scatter() || op.has_local_reduce();
    case Mutation::kDropConcat:
      return op.has_concat_gradients();
    case Mutation::kDropDivide:
      // What others divide by is asked for, and not known to be right.
      return op.has_divide() && IsFlat(plan, op);
    case Mutation::kDropRandom:
      return op.has_random();
    case Mutation::kDropRecord:
      return op.has_record();
    case Mutation::kDropEventWait:
    case Mutation::kOtherRecord:
      return op.event_waits_size();
    case Mutation::kOtherEvent:
      return plan.events_size() > 1 ? op.event_waits_size() : 0;
    case Mutation::kFreeEarlier:
      return first ? 0 : op.frees_size();
    case Mutation::kFreeLater:
      return last ? 0 : op.frees_size();
    case Mutation::kAllocateLater:
      return last ? 0 : op.allocs_size();
    case Mutation::kSwap:
      return !last;
    default:
      return 0;
  }
}

bool ChangesBuffer(Mutation mutation) { return mutation >= Mutation::kShrinkBuffer; }

void ChangeBuffer(pb::Buffer& buffer, Mutation mutation) {
  if (mutation == Mutation::kForgetStream) {
    buffer.mutable_recorded_on()->RemoveLast();
  } else if (mutation == Mutation::kChangeCategory) {
    buffer.set_category(NextCategory(buffer.category()));
  } else {
    const bool grow = mutation == Mutation::kGrowBuffer;
    buffer.set_bytes(buffer.bytes() + (grow ? 1 : -1) * ElementOf(buffer));
  }
}

// What an op tells the host of events.
void ChangeEvent(pb::Op& op, Mutation mutation, int index, int events) {
  if (mutation == Mutation::kDropRecord) {
    op.clear_record();
    op.clear_record_stream();
    return;
  }
  pb::EventWait& wait = *op.mutable_event_waits(index);
  if (mutation == Mutation::kOtherRecord) {
    wait.set_back(wait.back() + 1);
  } else if (mutation == Mutation::kOtherEvent) {
    wait.set_event((wait.event() + 1) % events);
  } else {
    op.mutable_event_waits()->DeleteSubrange(index, 1);
  }
}

void ChangeOp(pb::Segment& segment, Mutation mutation, const Site& site, int events) {
  pb::Op& op = *segment.mutable_ops(site.op);
  const auto move = [&](Indices& from, Indices& to) {
    to.Add(from.Get(site.index));
    Erase(from, site.index);
  };
  switch (mutation) {
    case Mutation::kDropWait:
      return Erase(*op.mutable_waits(), site.index);
    case Mutation::kDropStreamWait:
    case Mutation::kDropReshard:
      return EraseOp(segment, site.op);
    case Mutation::kDropGather:
      return EraseGather(segment, site.op);
    case Mutation::kDropRandom:
      return op.clear_random();
    case Mutation::kDropRecord:
    case Mutation::kDropEventWait:
    case Mutation::kOtherRecord:
    case Mutation::kOtherEvent:
      return ChangeEvent(op, mutation, site.index, events);
    case Mutation::kFreeEarlier:
      return move(*op.mutable_frees(), *segment.mutable_ops(site.op - 1)->mutable_frees());
    case Mutation::kFreeLater:
      return move(*op.mutable_frees(), *segment.mutable_ops(site.op + 1)->mutable_frees());
    case Mutation::kAllocateLater:
      return move(*op.mutable_allocs(), *segment.mutable_ops(site.op + 1)->mutable_allocs());
    case Mutation::kSwap:
      return Swap(segment, site.op);
    default:
      return EraseWork(segment, site.op);
  }
}

}  // namespace

std::string_view Name(Mutation mutation) {
  static constexpr std::string_view kNames[kMutations] = {
      "drop a wait",           "drop a stream_wait",   "drop a gather",
      "drop a copy_out",       "drop a reshard",       "drop a reduce_copy_in",
      "drop a reduce_scatter", "drop a join",          "drop a division",
      "drop random numbers",   "drop a record",        "drop an event wait",
      "wait for other record", "wait for other event", "free one op earlier",
      "free one op later",     "allocate later",       "swap neighbours",
      "shrink a buffer",       "grow a buffer",        "change a category",
      "forget a stream"};
  return kNames[static_cast<int>(mutation)];
}

std::vector<Site> Sites(const pb::Plan& plan, Mutation mutation) {
  std::vector<Site> sites;
  if (ChangesBuffer(mutation)) {
    for (int b = 0; b < plan.buffers_size(); ++b) {
      if (mutation == Mutation::kForgetStream && plan.buffers(b).recorded_on().empty()) continue;
      sites.push_back({0, 0, b});
    }
    return sites;
  }
  for (int s = 0; s < plan.segments_size(); ++s) {
    const pb::Segment& segment = plan.segments(s);
    for (int i = 0; i < segment.ops_size(); ++i) {
      if (mutation == Mutation::kSwap && SwapsMean(segment, i)) continue;
      const int places =
          Places(plan, segment.ops(i), mutation, i == 0, i + 1 == segment.ops_size());
      for (int place = 0; place < places; ++place) sites.push_back({s, i, place});
    }
  }
  return sites;
}

pb::Plan Mutant(const pb::Plan& plan, Mutation mutation, const Site& site) {
  pb::Plan mutant = plan;
  if (ChangesBuffer(mutation)) {
    ChangeBuffer(*mutant.mutable_buffers(site.index), mutation);
  } else {
    ChangeOp(*mutant.mutable_segments(site.segment), mutation, site, plan.events_size());
  }
  return mutant;
}

}  // namespace foreshard
