#include "sim/invariants.h"

#include <fmt/core.h>

#include <algorithm>

namespace foreshard::sim {

InvariantChecker::InvariantChecker(const run::Program& program)
    : program_(program),
      last_on_stream_(program.is_compute_stream.size(), -1),
      last_in_group_(static_cast<size_t>(program.groups), -1),
      records_(program.event_depths.size()),
      alive_(program.buffer_bytes.size(), false) {
  for (run::BufferId buffer : program.resident) {
    alive_[Index(buffer)] = true;
    allocated_ += program.buffer_bytes[Index(buffer)];
  }
}

Status InvariantChecker::Verdict() {
  Bytes alive;
  for (size_t i = 0; i < alive_.size(); ++i) {
    if (alive_[i]) alive += program_.buffer_bytes[i];
  }
  if (violation_.empty() && allocated_ - freed_ != alive) {
    violation_ = fmt::format("{} bytes were allocated and {} freed, but {} are alive",
                             allocated_.count(), freed_.count(), alive.count());
  }
  for (size_t i = 0; i < ops_.size() && violation_.empty(); ++i) {
    if (ops_[i].on_stream && ops_[i].state != State::kEnded) {
      violation_ = fmt::format("op {} of the run never ended", i);
    }
  }
  return violation_.empty() ? OkStatus() : Internal(violation_);
}

void InvariantChecker::OpBegun(const run::OpInstance& op, SimTime now) {
  Clock(now);
  const run::OpRecord& record = program_.op(op.op);
  for (int32_t wait : program_.WaitOps(record.host_waits)) {
    const int64_t earlier = op.sequence - op.position + wait;
    if (At(earlier).state != State::kEnded) {
      Fail(op, fmt::format("begun before op {} that the host waits for has ended", earlier));
    }
  }
  for (const run::RecordRef& wait : program_.WaitRecords(record.event_waits)) {
    const std::vector<int64_t>& records = records_[Index(wait.event)];
    const auto back = static_cast<size_t>(wait.back);
    if (back >= records.size()) return Fail(op, "waits for a record that does not exist");
    const int64_t earlier = records[records.size() - 1 - back];
    if (earlier >= 0 && At(earlier).state != State::kEnded) {
      Fail(op, fmt::format("begun before op {} that the host waits for has ended", earlier));
    }
  }
}

void InvariantChecker::OpIssued(const run::OpInstance& op, SimTime now) {
  Clock(now);
  Seen& seen = At(op.sequence);
  if (seen.state != State::kUnseen) Fail(op, "issued twice");
  const run::OpRecord& record = program_.op(op.op);
  seen.state = State::kIssued;
  seen.step = op.step;
  seen.on_stream = record.stream != run::kNoStream;
  if (seen.on_stream) RecordPredecessors(op, record, seen);
  if (record.record == run::kNoEvent) return;
  records_[Index(record.record)].push_back(last_on_stream_[Index(record.record_stream)]);
}

void InvariantChecker::RecordPredecessors(const run::OpInstance& op, const run::OpRecord& record,
                                          Seen& seen) {
  seen.first_stream_wait = static_cast<int32_t>(stream_wait_ops_.size());
  for (run::StreamId stream : program_.WaitStreams(record.stream_waits)) {
    const int64_t last = last_on_stream_[Index(stream)];
    if (last >= 0) stream_wait_ops_.push_back(last);
  }
  seen.stream_waits = static_cast<int32_t>(stream_wait_ops_.size()) - seen.first_stream_wait;
  seen.before_on_stream = last_on_stream_[Index(record.stream)];
  last_on_stream_[Index(record.stream)] = op.sequence;
  if (record.group == run::kNoGroup) return;
  seen.before_in_group = last_in_group_[Index(record.group)];
  last_in_group_[Index(record.group)] = op.sequence;
}

template <typename Visit>
void InvariantChecker::ForEachPredecessor(const run::OpInstance& op, const Seen& seen,
                                          Visit visit) {
  for (int32_t wait : program_.WaitOps(program_.op(op.op).waits)) {
    visit(op.sequence - op.position + wait);
  }
  for (int32_t i = 0; i < seen.stream_waits; ++i) {
    visit(stream_wait_ops_[seen.first_stream_wait + i]);
  }
  if (seen.before_on_stream >= 0) visit(seen.before_on_stream);
  if (seen.before_in_group >= 0) visit(seen.before_in_group);
}

void InvariantChecker::OpStarted(const run::OpInstance& op, SimTime now) {
  Clock(now);
  Seen& seen = At(op.sequence);
  if (seen.state != State::kIssued) Fail(op, "started twice or before it was issued");
  seen.state = State::kRunning;
  seen.started = now;
  SimTime before{0};
  ForEachPredecessor(op, seen, [&](int64_t earlier) {
    const Seen& other = At(earlier);
    if (other.state != State::kEnded) {
      Fail(op, fmt::format("started before op {} of the run, which it follows, ended", earlier));
    }
    if (other.step == op.step) before = std::max(before, other.chain);
  });
  seen.chain = before + program_.op(op.op).device;
}

void InvariantChecker::OpEnded(const run::OpInstance& op, SimTime now) {
  Clock(now);
  Seen& seen = At(op.sequence);
  const run::OpRecord& record = program_.op(op.op);
  if (seen.state != State::kRunning) return Fail(op, "ended twice or before it started");
  seen.state = State::kEnded;
  if (now - seen.started != record.device) {
    Fail(op, fmt::format("took {} ps instead of {} ps", (now - seen.started).count(),
                         record.device.count()));
  }
  if (static_cast<size_t>(op.step) >= steps_.size()) return Fail(op, "ended in no step");
  StepTotals& step = steps_[op.step];
  step.longest_chain = std::max(step.longest_chain, seen.chain);
  step.busy[Index(record.stream)] += now - seen.started;
}

void InvariantChecker::BufferAllocated(run::BufferId buffer, const run::OpInstance& op,
                                       SimTime now) {
  Clock(now);
  if (alive_[Index(buffer)]) Fail(op, fmt::format("allocates buffer {} twice", Index(buffer)));
  alive_[Index(buffer)] = true;
  allocated_ += program_.buffer_bytes[Index(buffer)];
}

void InvariantChecker::BufferFreed(run::BufferId buffer, const run::OpInstance& op, SimTime now) {
  Clock(now);
  if (!alive_[Index(buffer)]) {
    Fail(op, fmt::format("frees buffer {}, which is not alive", Index(buffer)));
  }
  alive_[Index(buffer)] = false;
  freed_ += program_.buffer_bytes[Index(buffer)];
}

void InvariantChecker::StepBegun(int32_t step, SimTime now) {
  Clock(now);
  steps_.resize(static_cast<size_t>(step) + 1);
  steps_.back().begun = now;
  steps_.back().busy.assign(program_.is_compute_stream.size(), SimTime(0));
}

void InvariantChecker::StepEnded(int32_t step, SimTime now) {
  Clock(now);
  const StepTotals& totals = steps_[step];
  const SimTime lasted = now - totals.begun;
  SimTime bound = totals.longest_chain;
  for (SimTime busy : totals.busy) bound = std::max(bound, busy);
  if (lasted < bound && violation_.empty()) {
    violation_ = fmt::format(
        "step {} lasted {} ps, less than the {} ps of its longest chain or "
        "busiest stream",
        step, lasted.count(), bound.count());
  }
}

void InvariantChecker::Clock(SimTime now) {
  if (now < now_ && violation_.empty()) {
    violation_ = fmt::format("time goes back from {} ps to {} ps", now_.count(), now.count());
  }
  now_ = std::max(now_, now);
}

void InvariantChecker::Fail(const run::OpInstance& op, const std::string& what) {
  if (!violation_.empty()) return;
  violation_ = fmt::format("step {}, op {} of segment {} (op {} of the run): {}", op.step,
                           op.position, Index(op.segment), op.sequence, what);
}

InvariantChecker::Seen& InvariantChecker::At(int64_t sequence) {
  if (static_cast<size_t>(sequence) >= ops_.size()) {
    ops_.resize(static_cast<size_t>(sequence) + 1);
  }
  return ops_[static_cast<size_t>(sequence)];
}

}  // namespace foreshard::sim
