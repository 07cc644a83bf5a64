// The discrete-event interpretation of a compiled plan on one rank; ranks are identical, so one
// stands for all. Decides nothing: every wait is in the plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/base/units.h"
#include "proto/run/event_records.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"
#include "sim/event_queue.h"

namespace foreshard::sim {

// The host issues ops in order, each taking its host time, and never waits for the device except
// where an op says so: until other ops of its segment have ended, or all that had been issued to a
// stream when an event was recorded. An op starts when it is issued and everything it follows has
// ended:
//   - the op issued before it on its stream,
//   - the ops it lists as waits,
//   - the collective issued before it in its group,
//   - for a stream wait, the last op issued on each listed stream.
// All of these were issued earlier, so a run always ends.
class Engine {
 public:
  // REQUIRES: `program` and the listeners outlive the engine.
  Engine(const run::Program& program, std::span<run::Listener* const> listeners);

  // Runs the given programs one after the other, once; the host goes from one to the next without
  // waiting for the device. Returns the time when everything has ended.
  SimTime Run(std::span<const run::ProgramId> steps);

 private:
  enum class EventKind : int8_t { kIssued, kEnded };
  struct Event {
    EventKind kind;
    int64_t sequence;
  };
  // One use of a segment.
  struct Instance {
    run::OpInstance head;  // its first op
    int32_t size = 0;
  };
  // An op that the host has issued; kept until it and all before it have ended.
  struct Live {
    int32_t instance = 0;
    int32_t pending = 0;        // ops it follows that have not ended
    int32_t first_waiter = -1;  // in edges_
    bool ended = false;
  };
  // `target` follows the op whose list this is in.
  struct Edge {
    int64_t target = 0;
    int32_t next = -1;
  };
  struct Step {
    int64_t unfinished = 0;  // ops issued to streams that have not ended
    bool issued = false;
  };

  void AdvanceHost();
  bool EnterNextSegment();
  void BeginStep();
  bool HostMustWait(const run::OpRecord& record);
  void HostFollows(int64_t earlier);
  void BeginOp(const run::OpRecord& record);
  void IssueOp(const run::OpRecord& record);
  void Enqueue(const run::OpRecord& record, int64_t sequence);
  void Follow(int64_t earlier, int64_t later);
  void AddEdge(int64_t earlier, int64_t target);
  void Start(int64_t sequence);
  void End(int64_t sequence);
  void Release(int64_t target);
  void ReportEndedSteps();
  void DropEndedPrefix();

  Live& live(int64_t sequence) { return window_[static_cast<size_t>(sequence - window_base_)]; }
  bool HasEnded(int64_t sequence) { return sequence < window_base_ || live(sequence).ended; }
  run::OpInstance Describe(int64_t sequence);
  template <typename Call>
  void Tell(Call call) {
    for (run::Listener* listener : listeners_) call(*listener);
  }

  const run::Program& program_;
  std::vector<run::Listener*> listeners_;
  EventQueue<Event> queue_;

  // Host: where it stands in the steps.
  std::span<const run::ProgramId> programs_;
  std::vector<Step> steps_;
  int32_t step_ = -1;
  size_t use_ = 0;
  int32_t repetition_ = 0;
  int32_t position_ = 0;  // in the current segment
  int32_t host_pending_ = 0;
  bool host_waited_ = false;  // for the op at position_
  bool host_done_ = false;
  int32_t ended_steps_ = 0;

  std::vector<Instance> instances_;
  std::vector<Live> window_;
  int64_t window_base_ = 0;
  size_t ended_prefix_ = 0;  // of window_
  std::vector<Edge> edges_;
  int32_t free_edge_ = -1;
  std::vector<int64_t> last_on_stream_;  // sequence, -1 = none yet
  std::vector<int64_t> last_in_group_;
  run::EventRecords event_records_;
};

}  // namespace foreshard::sim
