#include "sim/engine.h"

#include <algorithm>
#include <optional>

#include "proto/base/check.h"

namespace foreshard::sim {
namespace {

constexpr int64_t kHost = -1;  // target of edges that release the host
constexpr size_t kPrefixWorthDropping = 1024;

}  // namespace

Engine::Engine(const run::Program& program, std::span<run::Listener* const> listeners)
    : program_(program),
      listeners_(listeners.begin(), listeners.end()),
      last_on_stream_(program.is_compute_stream.size(), -1),
      last_in_group_(static_cast<size_t>(program.groups), -1),
      event_records_(program) {}

SimTime Engine::Run(std::span<const run::ProgramId> steps) {
  CHECK(step_ < 0 && !host_done_) << "an engine runs once";
  programs_ = steps;
  steps_.resize(steps.size());
  host_done_ = steps.empty();
  if (!host_done_) {
    BeginStep();
    host_done_ = !EnterNextSegment();
  }
  AdvanceHost();
  while (std::optional<Event> event = queue_.Pop()) {
    if (event->kind == EventKind::kEnded) {
      End(event->sequence);
    } else {
      IssueOp(program_.op(Describe(event->sequence).op));
      AdvanceHost();
    }
  }
  CHECK(host_done_ && ended_steps_ == static_cast<int32_t>(steps.size()))
      << "events ran out at step " << ended_steps_ << " with ops still blocked";
  return queue_.now();
}

// Carries out what the host can do at this moment: up to an op whose issue takes time, a wait, or
// the end.
void Engine::AdvanceHost() {
  while (!host_done_) {
    const Instance& instance = instances_.back();
    const run::OpRecord& record =
        program_.op(run::OpId{static_cast<int32_t>(instance.head.op) + position_});
    if (!host_waited_ && HostMustWait(record)) return;
    host_waited_ = false;
    BeginOp(record);
    if (record.host.count() > 0) {
      queue_.At(queue_.now() + record.host,
                Event{EventKind::kIssued, instance.head.sequence + position_});
      return;
    }
    IssueOp(record);
  }
}

// Moves to the next repetition, use or step that has ops; false when there is none.
bool Engine::EnterNextSegment() {
  while (true) {
    const std::vector<run::UseRecord>& uses = program_.programs[Index(programs_[step_])];
    if (use_ == uses.size()) {
      steps_[step_].issued = true;
      ReportEndedSteps();
      if (step_ + 1 == static_cast<int32_t>(programs_.size())) return false;
      BeginStep();
      continue;
    }
    if (repetition_ == uses[use_].repeat) {
      ++use_;
      repetition_ = 0;
      continue;
    }
    const run::SegmentId segment = uses[use_].segment;
    const run::SegmentRecord& record = program_.segments[Index(segment)];
    DropEndedPrefix();
    const int64_t sequence = window_base_ + static_cast<int64_t>(window_.size());
    instances_.push_back(Instance{
        run::OpInstance{sequence, step_, programs_[step_], segment, repetition_++, record.first, 0},
        record.size});
    window_.resize(window_.size() + static_cast<size_t>(record.size),
                   Live{static_cast<int32_t>(instances_.size()) - 1, 0, -1, false});
    position_ = 0;
    if (record.size > 0) return true;
  }
}

void Engine::BeginStep() {
  ++step_;
  use_ = 0;
  repetition_ = 0;
  Tell([&](run::Listener& l) { l.StepBegun(step_, queue_.now()); });
}

// Registers the host as a waiter of every op that it must wait for and that has not ended.
bool Engine::HostMustWait(const run::OpRecord& record) {
  const int64_t first = instances_.back().head.sequence;
  for (int32_t wait : program_.WaitOps(record.host_waits)) HostFollows(first + wait);
  for (const run::RecordRef& wait : program_.WaitRecords(record.event_waits)) {
    HostFollows(event_records_.Find(wait));
  }
  host_waited_ = host_pending_ > 0;
  return host_waited_;
}

void Engine::HostFollows(int64_t earlier) {
  if (earlier < 0 || HasEnded(earlier)) return;
  AddEdge(earlier, kHost);
  ++host_pending_;
}

void Engine::BeginOp(const run::OpRecord& record) {
  const run::OpInstance instance = Describe(instances_.back().head.sequence + position_);
  Tell([&](run::Listener& l) { l.OpBegun(instance, queue_.now()); });
  for (run::BufferId buffer : program_.Buffers(record.allocs)) {
    Tell([&](run::Listener& l) { l.BufferAllocated(buffer, instance, queue_.now()); });
  }
}

// The host has finished issuing the op at position_.
void Engine::IssueOp(const run::OpRecord& record) {
  const int64_t sequence = instances_.back().head.sequence + position_;
  const run::OpInstance instance = Describe(sequence);
  Tell([&](run::Listener& l) { l.OpIssued(instance, queue_.now()); });
  for (run::BufferId buffer : program_.Buffers(record.frees)) {
    Tell([&](run::Listener& l) { l.BufferFreed(buffer, instance, queue_.now()); });
  }
  if (record.stream == run::kNoStream) {
    live(sequence).ended = true;
  } else {
    Enqueue(record, sequence);
  }
  if (record.record != run::kNoEvent) {
    event_records_.Add(record.record, last_on_stream_[Index(record.record_stream)]);
  }
  if (++position_ == instances_.back().size) host_done_ = !EnterNextSegment();
}

void Engine::Enqueue(const run::OpRecord& record, int64_t sequence) {
  ++steps_[step_].unfinished;
  const int64_t first = instances_.back().head.sequence;
  for (int32_t wait : program_.WaitOps(record.waits)) Follow(first + wait, sequence);
  for (run::StreamId stream : program_.WaitStreams(record.stream_waits)) {
    Follow(last_on_stream_[Index(stream)], sequence);
  }
  Follow(last_on_stream_[Index(record.stream)], sequence);
  last_on_stream_[Index(record.stream)] = sequence;
  if (record.group != run::kNoGroup) {
    Follow(last_in_group_[Index(record.group)], sequence);
    last_in_group_[Index(record.group)] = sequence;
  }
  if (live(sequence).pending == 0) Start(sequence);
}

void Engine::Follow(int64_t earlier, int64_t later) {
  if (earlier < 0 || HasEnded(earlier)) return;
  AddEdge(earlier, later);
  ++live(later).pending;
}

void Engine::AddEdge(int64_t earlier, int64_t target) {
  int32_t edge = free_edge_;
  if (edge < 0) {
    edge = static_cast<int32_t>(edges_.size());
    edges_.emplace_back();
  } else {
    free_edge_ = edges_[edge].next;
  }
  edges_[edge] = Edge{target, live(earlier).first_waiter};
  live(earlier).first_waiter = edge;
}

void Engine::Start(int64_t sequence) {
  const run::OpInstance instance = Describe(sequence);
  Tell([&](run::Listener& l) { l.OpStarted(instance, queue_.now()); });
  queue_.At(queue_.now() + program_.op(instance.op).device, Event{EventKind::kEnded, sequence});
}

void Engine::End(int64_t sequence) {
  const run::OpInstance instance = Describe(sequence);
  Tell([&](run::Listener& l) { l.OpEnded(instance, queue_.now()); });
  live(sequence).ended = true;
  // The list is walked by index: releasing the host may issue ops and move edges_ and window_.
  int32_t edge = live(sequence).first_waiter;
  --steps_[instance.step].unfinished;
  ReportEndedSteps();
  while (edge >= 0) {
    const Edge waiter = edges_[edge];
    edges_[edge].next = free_edge_;
    free_edge_ = edge;
    Release(waiter.target);
    edge = waiter.next;
  }
}

void Engine::Release(int64_t target) {
  if (target == kHost) {
    if (--host_pending_ == 0) AdvanceHost();
  } else if (--live(target).pending == 0) {
    Start(target);
  }
}

void Engine::ReportEndedSteps() {
  while (ended_steps_ <= step_ && steps_[ended_steps_].issued &&
         steps_[ended_steps_].unfinished == 0) {
    const int32_t step = ended_steps_++;
    Tell([&](run::Listener& l) { l.StepEnded(step, queue_.now()); });
  }
}

// Forgets ops that nobody can wait for any more, so that long runs stay small.
void Engine::DropEndedPrefix() {
  while (ended_prefix_ < window_.size() && window_[ended_prefix_].ended) ++ended_prefix_;
  if (ended_prefix_ < kPrefixWorthDropping || 2 * ended_prefix_ < window_.size()) return;
  window_.erase(window_.begin(), window_.begin() + static_cast<int64_t>(ended_prefix_));
  window_base_ += static_cast<int64_t>(ended_prefix_);
  ended_prefix_ = 0;
}

run::OpInstance Engine::Describe(int64_t sequence) {
  const Instance& instance = instances_[live(sequence).instance];
  run::OpInstance result = instance.head;
  result.sequence = sequence;
  result.position = static_cast<int32_t>(sequence - instance.head.sequence);
  result.op = run::OpId{static_cast<int32_t>(instance.head.op) + result.position};
  return result;
}

}  // namespace foreshard::sim
