#include "proto/happens_before.h"

#include <algorithm>

#include "proto/op_facts.h"

namespace foreshard {
HappensBefore::HappensBefore(const pb::Plan& plan)
    : plan_(plan),
      streams_(plan.streams_size()),
      issued_(static_cast<size_t>(streams_)),
      host_(issued_.size()),
      stream_ends_(issued_.size() * issued_.size()),
      group_ends_(static_cast<size_t>(plan.groups_size()) * issued_.size()),
      records_(static_cast<size_t>(plan.events_size())),
      start_(issued_.size()),
      refs_(issued_.size()) {
  size_t most = 0;
  for (const pb::Segment& segment : plan.segments()) {
    most = std::max(most, static_cast<size_t>(segment.ops_size()));
  }
  const std::vector<int32_t> depths = EventDepths(plan);
  for (size_t e = 0; e < records_.size(); ++e) {
    const auto depth = static_cast<size_t>(depths[e]);
    records_[e].streams.resize(depth);
    records_[e].clocks.resize(depth * issued_.size());
  }
  op_ends_.resize(most * issued_.size());
  points_.resize(most);
}

void HappensBefore::BeginSegment(int program, int segment) {
  segment_ = &plan_.segments(segment);
  program_index_ = program;
  segment_index_ = segment;
}

void HappensBefore::Join(ConstClock with) {
  for (size_t s = 0; s < start_.size(); ++s) start_[s] = std::max(start_[s], with[s]);
}

HappensBefore::Told HappensBefore::TellHost(const pb::Op& op, int wait) const {
  if (wait < op.host_waits_size()) {
    const int32_t awaited = op.host_waits(wait);
    return {Row(op_ends_, awaited), points_[static_cast<size_t>(awaited)]};
  }
  const pb::EventWait& awaited = op.event_waits(wait - op.host_waits_size());
  const Records& records = records_[static_cast<size_t>(awaited.event())];
  const int32_t number = records.count - 1 - awaited.back();
  if (number < 0) return {};
  const auto slot = static_cast<size_t>(number) % records.streams.size();
  const ConstClock clock = Row(records.clocks, static_cast<int>(slot));
  const int32_t stream = records.streams[slot];
  return {clock, {stream, clock[static_cast<size_t>(stream)]}};
}

void HappensBefore::Record(const pb::Op& op) {
  Records& records = records_[static_cast<size_t>(op.record())];
  if (records.streams.empty()) return;  // nobody waits for it
  const auto slot = static_cast<size_t>(records.count++) % records.streams.size();
  const ConstClock end = Row(stream_ends_, op.record_stream());
  std::copy(end.begin(), end.end(), Row(records.clocks, static_cast<int>(slot)).begin());
  records.streams[slot] = op.record_stream();
}

void HappensBefore::Issue(int op_index) {
  const pb::Op& op = segment_->ops(op_index);
  for (int i = 0; i < HostWaits(op); ++i) {
    const ConstClock end = TellHost(op, i).clock;
    for (size_t s = 0; s < end.size(); ++s) host_[s] = std::max(host_[s], end[s]);
  }
  if (op.has_stream()) Enqueue(op, op_index);
  if (op.has_record()) Record(op);
}

void HappensBefore::Enqueue(const pb::Op& op, int op_index) {
  start_ = host_;
  Join(Row(stream_ends_, op.stream()));
  for (const int32_t wait : op.waits()) Join(Row(op_ends_, wait));
  for (const int32_t on : op.stream_wait().on()) Join(Row(stream_ends_, on));
  const int group = CollectiveGroup(op);
  if (group >= 0) Join(Row(group_ends_, group));

  const int32_t position = ++issued_[static_cast<size_t>(op.stream())];
  last_ = {op.stream(), position};
  points_[static_cast<size_t>(op_index)] = last_;
  refs_[static_cast<size_t>(op.stream())].push_back({program_index_, segment_index_, op_index});
  const Clock end = Row(op_ends_, op_index);
  std::copy(start_.begin(), start_.end(), end.begin());
  end[static_cast<size_t>(op.stream())] = position;
  std::copy(end.begin(), end.end(), Row(stream_ends_, op.stream()).begin());
  if (group >= 0) std::copy(end.begin(), end.end(), Row(group_ends_, group).begin());
}

int32_t HappensBefore::KnownEnded(int waiter, int stream) const {
  const auto s = static_cast<size_t>(stream);
  return std::max(host_[s], Row(stream_ends_, waiter)[s]);
}

bool HappensBefore::HostImplies(const pb::Op& op, Point p, int without) const {
  const auto s = static_cast<size_t>(p.stream);
  if (host_[s] >= p.position) return true;
  for (int i = 0; i < HostWaits(op); ++i) {
    const Told told = TellHost(op, i);
    // Of two waits for the same point the later one is the superfluous one.
    if (i == without || (without >= 0 && i > without && told.point == p)) continue;
    if (!told.clock.empty() && told.clock[s] >= p.position) return true;
  }
  return false;
}

bool HappensBefore::IsImplied(int op_index, Reason reason, int index) const {
  const pb::Op& op = segment_->ops(op_index);
  if (reason == Reason::kHostWait || reason == Reason::kEventWait) {
    const int wait = index + (reason == Reason::kEventWait ? op.host_waits_size() : 0);
    return HostImplies(op, TellHost(op, wait).point, wait);
  }
  const bool on_stream = reason == Reason::kStreamWait;
  const int32_t on = on_stream ? op.stream_wait().on(index) : 0;
  const Point p = on_stream ? Point{on, issued(on)} : points_[static_cast<size_t>(op.waits(index))];
  const auto s = static_cast<size_t>(p.stream);
  if (p.position == 0 || HostImplies(op, p, -1)) return true;
  const auto covers = [&](ConstClock clock) { return clock[s] >= p.position; };
  if (covers(Row(stream_ends_, op.stream()))) return true;
  const int group = CollectiveGroup(op);
  if (group >= 0 && covers(Row(group_ends_, group))) return true;
  for (int i = 0; i < op.waits_size(); ++i) {
    const bool twin = !on_stream && i > index && op.waits(i) == op.waits(index);
    if ((on_stream || i != index) && !twin && covers(Row(op_ends_, op.waits(i)))) return true;
  }
  for (int i = 0; i < op.stream_wait().on_size(); ++i) {
    const bool twin = on_stream && i > index && op.stream_wait().on(i) == on;
    if (on_stream && (i == index || twin)) continue;
    if (covers(Row(stream_ends_, op.stream_wait().on(i)))) return true;
  }
  return false;
}

}  // namespace foreshard
