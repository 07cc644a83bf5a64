// What can be said of an op by itself: indices, stream, waits, operands, sizes.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "proto/plan_check_contents.h"
#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

template <typename Indices>
Status CheckIndices(const OpContext& c, std::string_view table, const Indices& indices, int size) {
  for (const int32_t index : indices) {
    if (!InTable(index, size)) {
      return c.Broken("index", fmt::format("{} {} of {}", table, index, size));
    }
  }
  return OkStatus();
}

Status CheckOpIndices(const OpContext& c) {
  const pb::Op& op = c.op();
  const int buffers = c.plan.buffers_size();
  RETURN_IF_ERROR(CheckIndices(c, "allocates buffer", op.allocs(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "frees buffer", op.frees(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "reads buffer", op.in(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "writes buffer", op.out(), buffers));
  if (op.has_unit() && !InTable(op.unit(), c.plan.units_size())) {
    return c.Broken("index", fmt::format("unit {} of {}", op.unit(), c.plan.units_size()));
  }
  if (op.has_module() && !InTable(op.module(), c.plan.modules_size())) {
    return c.Broken("index", fmt::format("module {} of {}", op.module(), c.plan.modules_size()));
  }
  if (op.phase() < pb::FORWARD || op.phase() > pb::Phase_MAX) {
    return c.Broken("phase", fmt::format("phase {} is none", static_cast<int>(op.phase())));
  }
  if (op.micro_batch() < 0) return c.Broken("phase", "the micro-batch is negative");
  if (op.in_versions_size() != 0 && op.in_versions_size() != op.in_size()) {
    return c.Broken("version", fmt::format("{} versions for {} buffers read", op.in_versions_size(),
                                           op.in_size()));
  }
  if (op.in_offsets_size() != 0 && op.in_offsets_size() != op.in_size()) {
    return c.Broken(
        "view", fmt::format("{} offsets for {} buffers read", op.in_offsets_size(), op.in_size()));
  }
  return OkStatus();
}

Status CheckOpStream(const OpContext& c) {
  const pb::Op& op = c.op();
  if (op.kind_case() == pb::Op::KIND_NOT_SET) {
    return c.Broken("kind", "says nothing to do; set one of the op kinds");
  }
  const bool works = !op.has_reshard() && !op.has_release() && !op.has_zero_grad();
  if (works != op.has_stream()) {
    return c.Broken("stream", works ? "puts work on a stream but names none"
                                    : "puts no work on a stream but names one");
  }
  if (op.has_stream() && !InTable(op.stream(), c.plan.streams_size())) {
    return c.Broken("index", fmt::format("stream {} of {}", op.stream(), c.plan.streams_size()));
  }
  if (!works && !(op.in().empty() && op.out().empty())) {
    return c.Broken("stream", "puts no work on a stream but reads or writes buffers");
  }
  return OkStatus();
}

Status CheckSettles(const OpContext& c) {
  for (const pb::Settle& settle : c.op().settles()) {
    if (!InTable(settle.buffer(), c.plan.buffers_size())) {
      return c.Broken(
          "index", fmt::format("settles buffer {} of {}", settle.buffer(), c.plan.buffers_size()));
    }
    if (settle.category() < pb::SHARDED_PARAM || settle.category() > pb::Category_MAX) {
      return c.Broken("settle", fmt::format("category {} of buffer {} is none",
                                            static_cast<int>(settle.category()), settle.buffer()));
    }
  }
  return OkStatus();
}

// Whether the op is a part of a gather or reduction, and so belongs to a unit.
bool MovesUnit(const pb::Op& op) { return IsPartOfGather(op) || IsPartOfReduction(op); }

template <typename Waits>
Status CheckWaitList(const OpContext& c, const Waits& waits) {
  for (const int32_t wait : waits) {
    if (wait < 0 || wait >= c.index) {
      return c.Broken("waits", fmt::format("waits for op {}, which is not earlier", wait));
    }
    if (!c.segment.ops(wait).has_stream()) {
      return c.Broken("waits", fmt::format("waits for op {}, which is on no stream", wait));
    }
  }
  return OkStatus();
}

// An event is recorded on a stream, and the host waits for one of its records.
Status CheckOpEvents(const OpContext& c) {
  const pb::Op& op = c.op();
  const int events = c.plan.events_size();
  if (op.has_record() && !InTable(op.record(), events)) {
    return c.Broken("index", fmt::format("records event {} of {}", op.record(), events));
  }
  if (!InTable(op.record_stream(), op.has_record() ? c.plan.streams_size() : 1)) {
    return c.Broken("index", fmt::format("records stream {} of {}", op.record_stream(),
                                         op.has_record() ? c.plan.streams_size() : 0));
  }
  for (const pb::EventWait& wait : op.event_waits()) {
    if (!InTable(wait.event(), events)) {
      return c.Broken("index", fmt::format("waits for event {} of {}", wait.event(), events));
    }
    if (wait.back() >= 0 && wait.back() <= kMostRecordsPast) continue;
    return c.Broken(
        "event", fmt::format("looks past {} records of event \"{}\", expected 0 to {}", wait.back(),
                             c.plan.events(wait.event()).name(), kMostRecordsPast));
  }
  return OkStatus();
}

// Forward runs again in BACKWARD only.
Status CheckRecompute(const OpContext& c) {
  if (!c.op().compute().recompute() || c.op().phase() == pb::BACKWARD) return OkStatus();
  return c.Broken("recompute", fmt::format("runs again in {}, expected BACKWARD",
                                           pb::Phase_Name(c.op().phase())));
}

Status CheckKind(const OpContext& c) {
  const pb::Op& op = c.op();
  if ((MovesUnit(op) || MovesBucket(op)) && !op.has_unit())
    return c.Broken("unit", "belongs to no unit");
  switch (op.kind_case()) {
    case pb::Op::kCompute:
      RETURN_IF_ERROR(CheckRecompute(c));
      return CheckCompute(c);
    case pb::Op::kStreamWait:
      return CheckIndices(c, "waits for stream", op.stream_wait().on(), c.plan.streams_size());
    case pb::Op::kOptimizerInit:
    case pb::Op::kOptimizerStep:
    case pb::Op::kClipNorms:
    case pb::Op::kClipScale:
      return CheckUpdate(c);
    case pb::Op::kBucketCopyIn:
    case pb::Op::kBucketCopyOut:
    case pb::Op::kBroadcast:
      return CheckBucketMove(c);
    default:
      return CheckMove(c);
  }
}

}  // namespace

Status CheckOps(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    for (int i = 0; i < segment.ops_size(); ++i) {
      const OpContext c{plan, segment, i};
      RETURN_IF_ERROR(CheckOpIndices(c));
      RETURN_IF_ERROR(CheckOpStream(c));
      RETURN_IF_ERROR(CheckWaitList(c, c.op().waits()));
      RETURN_IF_ERROR(CheckWaitList(c, c.op().host_waits()));
      RETURN_IF_ERROR(CheckOpEvents(c));
      RETURN_IF_ERROR(CheckSettles(c));
      RETURN_IF_ERROR(CheckHost(c));
      RETURN_IF_ERROR(CheckKind(c));
    }
  }
  return CheckViewSizes(plan);
}

}  // namespace foreshard::plan_check
