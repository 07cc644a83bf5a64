#include "tests/golden/plan_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "proto/base/dtype.h"
#include "tests/golden/plan_alive.h"
#include "tests/golden/plan_recompute.h"

namespace foreshard::golden {
namespace {

// As the traces have it: the enum's name in small letters, without what all of a part begin with.
std::string ReasonText(pb::AllGather::Reason reason) {
  std::string text = pb::AllGather::Reason_Name(reason);
  if (text.starts_with("REASON_")) text.erase(0, std::string("REASON_").size());
  for (char& letter : text) letter = static_cast<char>(std::tolower(letter));
  return text;
}

// Same elements in and out.
Event Moved(const char* kind, int64_t elems, pb::DType dtype) {
  Event event;
  event.kind = kind;
  event.elems_in = elems;
  event.elems_out = elems;
  event.dtype = DTypeText(dtype);
  return event;
}

Event Cast(const char* kind, pb::DType from, pb::DType to, int64_t in, int64_t out) {
  Event event;
  event.kind = kind;
  event.from = DTypeText(from);
  event.dtype = DTypeText(to);
  event.elems_in = in;
  event.elems_out = out;
  return event;
}

Event GatherEvent(const pb::Plan& plan, const pb::AllGather& op) {
  Event event = Moved("all_gather", op.elems_in(), op.dtype());
  event.elems_out = op.elems_out();
  event.group = plan.groups(op.group()).size();
  event.how = ReasonText(op.reason());
  return event;
}

Event ReduceEvent(const pb::Plan& plan, const pb::ReduceScatter& op) {
  Event event = Moved("reduce_scatter", op.elems_in(), op.dtype());
  event.elems_out = op.elems_out();
  event.group = plan.groups(op.group()).size();
  event.how = pb::ReduceScatter::Reduction_Name(op.reduction());
  if (op.reduction() == pb::ReduceScatter::PREMUL_SUM) {
    event.how += fmt::format(" by 1/{}", 1 / op.factor());
  }
  return event;
}

Event AllReduceEvent(const pb::Plan& plan, const pb::AllReduce& op) {
  Event event = Moved("all_reduce", op.elems(), op.dtype());
  event.group = plan.groups(op.group()).size();
  event.how = pb::ReduceScatter::Reduction_Name(op.reduction());
  return event;
}

Event CopyInEvent(const pb::Plan& plan, const pb::BucketCopyIn& op) {
  Event event = Moved("bucket_copy_in", op.elems(), op.dtype());
  event.how = fmt::format("{} at {} times {}", plan.parameters(op.parameter()).path(), op.offset(),
                          op.factor());
  if (op.accumulate()) event.how += ", accumulate";
  return event;
}

Event CopyOutEvent(const pb::Plan& plan, const pb::BucketCopyOut& op) {
  Event event = Moved("bucket_copy_out", op.elems(), op.dtype());
  event.how = fmt::format("{} at {}", plan.parameters(op.parameter()).path(), op.offset());
  return event;
}

Event BroadcastEvent(const pb::Plan& plan, const pb::Op& op) {
  Event event = Moved("broadcast", op.broadcast().elems(), op.broadcast().dtype());
  event.group = plan.groups(op.broadcast().group()).size();
  for (const pb::Parameter& p : plan.parameters()) {
    if (p.sharded_buffer() != op.out(0)) continue;
    event.how = fmt::format("{} from {}", p.path(), op.broadcast().root());
  }
  return event;
}

Event KeepSliceEvent(const pb::Plan& plan, const pb::KeepSlice& op) {
  Event event;
  event.kind = "reshard";
  event.group = plan.groups(op.group()).size();
  event.how = "post_forward";
  return event;
}

bool HasFlat(const pb::Plan& plan) { return plan.units(0).has_flat(); }

// Of a whole flat gradient.
Event FlatCopyEvent(const pb::ReduceCopyIn& op) {
  Event event = Cast("grad_cast", op.from(0), op.to(), op.elems_in(), op.elems_out());
  if (op.from(0) != op.to()) return event;
  event.kind = "grad_pad";
  event.from.clear();
  return event;
}

// Kind and sizes; an empty kind when the traces have no event for the op.
Event KindOf(const pb::Plan& plan, const pb::Op& op) {
  switch (op.kind_case()) {
    case pb::Op::kLocalGather:
      return Moved("copy_out", op.local_gather().elems(), op.local_gather().dtype());
    case pb::Op::kCastShard:
      return Cast("cast_shard", op.cast_shard().from(), op.cast_shard().to(),
                  op.cast_shard().elems(), op.cast_shard().elems());
    case pb::Op::kAllGather:
      return GatherEvent(plan, op.all_gather());
    case pb::Op::kCopyOut:
      return Moved("copy_out", op.copy_out().elems(), op.copy_out().dtype());
    case pb::Op::kKeepSlice:
      return KeepSliceEvent(plan, op.keep_slice());
    case pb::Op::kReshard: {
      Event event;
      event.kind = "reshard";
      return event;
    }
    case pb::Op::kReduceCopyIn:
      if (plan.units(op.unit()).has_flat()) return FlatCopyEvent(op.reduce_copy_in());
      return Cast("rs_copy_in", op.reduce_copy_in().from(0), op.reduce_copy_in().to(),
                  op.reduce_copy_in().elems_in(), op.reduce_copy_in().elems_out());
    case pb::Op::kReduceScatter:
      return ReduceEvent(plan, op.reduce_scatter());
    case pb::Op::kAllReduce:
      return AllReduceEvent(plan, op.all_reduce());
    case pb::Op::kBucketCopyIn:
      // Traces have no event for what moves as buckets are rebuilt.
      return op.phase() == pb::FORWARD ? Event{} : CopyInEvent(plan, op.bucket_copy_in());
    case pb::Op::kBucketCopyOut:
      return CopyOutEvent(plan, op.bucket_copy_out());
    case pb::Op::kBroadcast:
      return BroadcastEvent(plan, op);
    case pb::Op::kGradFinalize: {
      Event event = Cast("grad_finalize", op.grad_finalize().from(), op.grad_finalize().to(), 0, 0);
      if (plan.units(op.unit()).has_flat()) event.from.clear();
      if (op.grad_finalize().accumulate()) event.how = "accumulate";
      return event;
    }
    default:
      return {};
  }
}

class EventWalk {
 public:
  EventWalk(const pb::Plan& plan, const PlanRecordOptions& options)
      : plan_(plan), options_(options), alive_(plan, options), recompute_(plan) {
    for (const pb::Segment& segment : plan.segments()) {
      for (const pb::Op& op : segment.ops()) gathers_locally_ |= op.has_local_gather();
    }
  }

  std::vector<Event> Run(const pb::Program& program, int iteration) {
    events_.clear();
    position_ = 0;
    iteration_ = iteration;
    ForEachOp(plan_, program, [this](const pb::Op& op, int micro_batch) {
      Step(op, micro_batch);
      ++position_;
    });
    MarkLate(program);
    return std::move(events_);
  }

 private:
  // Ops that belong to the event after them: a trace issues it before they run.
  static std::string NextEvent(const pb::Plan& plan, const pb::Op& op) {
    if (op.has_split_gradient()) return "rs_copy_in";
    if (!op.has_release() || op.frees().empty() || HasFlat(plan)) return "";
    switch (plan.buffers(op.frees(0)).category()) {
      case pb::AG_OUTPUT:  // of the unit before
        return "copy_out";
      case pb::RS_INPUT:  // the end callback logs all that it drops, then drops them
        return "rs_recycle";
      default:
        return "";
    }
  }

  void Step(const pb::Op& op, int micro_batch) {
    Event event = KindOf(plan_, op);
    if (recompute_.Enters(op) && options_.has_recompute) event.kind = "recompute";
    Snapshot then;
    if (!event.kind.empty()) then = event.kind == next_ ? before_ : alive_.now();
    const std::string next = NextEvent(plan_, op);
    if (!next.empty() && next != next_) before_ = alive_.now();
    next_ = next;
    AddWaits(op, micro_batch);
    alive_.Allocate(op, micro_batch);
    // The library allocates what a collective writes before it calls it, and has dropped all of its
    // own when the gradient is there, but neither the sums of an earlier micro-batch nor what
    // autograd has made. Copies of flat gradients are told of when they are there.
    const bool copies = event.kind == "grad_cast" || event.kind == "grad_pad";
    if (op.has_reduce_scatter() || op.has_all_gather() || copies) then = alive_.now();
    alive_.Free(op, micro_batch);
    if (op.has_grad_finalize()) then = alive_.now();
    alive_.FreeLate(op, micro_batch);
    NoteRecord(op, micro_batch);
    if (next == "rs_recycle") return AddRecycled(op, micro_batch);
    if (event.kind.empty() || MergesIntoLast(op, event, then)) return NoteDivide(op);
    Complete(op, micro_batch, event);
    Add(std::move(event), std::move(then));
  }

  void AddWaits(const pb::Op& op, int micro_batch) {
    for (const pb::EventWait& wait : op.event_waits()) {
      const std::vector<FreeRecord>& all = records_[wait.event()];
      const FreeRecord& free = all[all.size() - 1 - wait.back()];
      Event event;
      event.kind = "cpu_wait";
      event.how = FreeText(free.unit, free.phase, free.micro_batch, iteration_ - free.iteration);
      Complete(op, micro_batch, event);
      Add(std::move(event), alive_.now());
    }
  }

  void NoteRecord(const pb::Op& op, int micro_batch) {
    if (!op.has_record()) return;
    records_[op.record()].push_back(
        {plan_.units(op.unit()).name(), PhaseText(op.phase()), micro_batch, iteration_});
  }

  void Complete(const pb::Op& op, int micro_batch, Event& event) const {
    event.phase = PhaseText(op.phase());
    event.micro_batch = micro_batch;
    const bool recompute = event.kind == "recompute";
    const int unit = recompute ? recompute_.unit() : op.has_unit() ? op.unit() : -1;
    event.unit = unit < 0 ? "" : plan_.units(unit).name();
    event.position = position_;
    if (gathers_locally_ && op.has_cast_shard()) {
      event = AsLocalCopy(std::move(event), 0);
    }
    if (op.has_reduce_scatter() && predivide_ != 1) {
      event.how += fmt::format(", predivide {}", predivide_);
    }
  }

  void Add(Event event, Snapshot then) {
    event.alive = std::move(then.alive);
    event.memory = then.total;
    if (event.kind == "reduce_scatter") predivide_ = 1;
    events_.push_back(std::move(event));
  }

  static Event AsLocalCopy(Event event, int64_t elems) {
    event.kind = "copy_out";
    event.from.clear();
    event.elems_in = event.elems_out = elems;
    return event;
  }

  // In a group of one rank the casts and copies of a unit's parameters are one event; so are the
  // slices that a unit keeps and its reshard; so are the cast of a gradient and its addition.
  bool MergesIntoLast(const pb::Op& op, const Event& event, const Snapshot& then) {
    if (events_.empty() || !op.has_unit()) return false;
    Event& last = events_.back();
    if (last.unit != plan_.units(op.unit()).name()) return false;
    if (gathers_locally_ && (op.has_cast_shard() || op.has_local_gather())) {
      if (last.kind != "copy_out") return false;
      if (op.has_local_gather()) last.elems_out = last.elems_in += event.elems_in;
      return true;
    }
    // A trace tells of a unit, the plan of each of its parameters.
    if (op.has_keep_slice()) return last.kind == "reshard" && last.how == "post_forward";
    if (!op.has_grad_finalize() || last.kind != "grad_finalize") return false;
    last.dtype = event.dtype;
    last.how = event.how;
    last.alive = then.alive;
    last.memory = then.total;
    return true;
  }

  // A division belongs to the reduction that follows or the one that was.
  void NoteDivide(const pb::Op& op) {
    if (!op.has_divide()) return;
    const pb::Category category = plan_.buffers(op.out(0)).category();
    if (category == pb::RS_INPUT || category == pb::UNSHARDED_GRAD) {
      predivide_ = op.divide().divisor();
      return;
    }
    for (size_t i = events_.size(); i > 0; --i) {
      Event& event = events_[i - 1];
      if (event.kind != "reduce_scatter") continue;
      event.how += fmt::format(", postdivide {}", op.divide().divisor());
      return;
    }
  }

  void AddRecycled(const pb::Op& op, int micro_batch) {
    if (!options_.has_recycle) return;
    for (const int32_t b : op.frees()) {
      if (plan_.buffers(b).category() != pb::RS_INPUT) continue;
      Event event;
      event.kind = "rs_recycle";
      event.phase = PhaseText(op.phase());
      event.micro_batch = micro_batch;
      event.unit = plan_.units(plan_.buffers(b).unit()).name();
      event.position = position_;
      Add(std::move(event), before_);
    }
  }

  // Late are reductions after all of a backward's computation.
  void MarkLate(const pb::Program& program) {
    std::map<int, int64_t> last_compute;  // by micro-batch
    int64_t position = 0;
    ForEachOp(plan_, program, [&](const pb::Op& op, int micro_batch) {
      if (op.phase() == pb::BACKWARD && op.has_compute()) last_compute[micro_batch] = position;
      ++position;
    });
    for (Event& event : events_) {
      if (event.kind == "rs_copy_in" && event.position > last_compute[event.micro_batch]) {
        event.how = "late";
      }
    }
  }

  const pb::Plan& plan_;
  const PlanRecordOptions& options_;
  AliveWalk alive_;
  std::string next_;  // event that the op before belongs to; "" = none
  Snapshot before_;   // the first of the ops that belong to it
  RecomputeMarks recompute_;
  bool gathers_locally_ = false;
  struct FreeRecord {
    std::string unit;
    std::string phase;
    int micro_batch;
    int iteration;
  };
  std::map<int, std::vector<FreeRecord>> records_;  // by event
  int iteration_ = 0;
  double predivide_ = 1;
  int64_t position_ = 0;
  std::vector<Event> events_;
};

}  // namespace

std::string PhaseText(pb::Phase phase) {
  switch (phase) {
    case pb::FORWARD:
      return "fwd";
    case pb::BACKWARD:
      return "bwd";
    case pb::CLIP:
      return "clip";
    case pb::OPTIMIZER:
      return "opt";
    default:
      return "zero";
  }
}

std::string DTypeText(pb::DType dtype) { return std::string(Name(static_cast<DType>(dtype))); }

void ForEachOp(const pb::Plan& plan, const pb::Program& program,
               const std::function<void(const pb::Op&, int)>& visit) {
  for (const pb::SegmentUse& use : program.uses()) {
    for (int i = 0; i < use.repeat(); ++i) {
      for (const pb::Op& op : plan.segments(use.segment()).ops()) visit(op, op.micro_batch() + i);
    }
  }
}

std::vector<std::vector<Event>> EventsOf(const pb::Plan& plan, const PlanRecordOptions& options) {
  EventWalk walk(plan, options);
  std::vector<std::vector<Event>> events;
  for (int i = 0; i < 3; ++i) events.push_back(walk.Run(ProgramOf(plan, i), i));
  return events;
}

const pb::Program& ProgramOf(const pb::Plan& plan, int iteration) {
  return plan.programs(std::min(iteration, plan.programs_size() - 1));
}

}  // namespace foreshard::golden
