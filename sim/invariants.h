// What must hold in every run whatever the plan and the hardware; watches a run from outside and
// trusts nothing the engine keeps. The simulator CHECKs the verdict in every build.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/status.h"
#include "proto/base/units.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::sim {

// Tests, for a run seen from its first event:
//   - time never goes back;
//   - every op on a stream is issued, starts and ends once, in this order, and takes its time;
//   - no op starts before what it follows has ended (waits, stream waits, its stream, its group);
//   - the host turns to no op before what it waits for has ended: ops, and all that had been issued
//     to a stream when an event was recorded;
//   - a buffer is allocated when it is not alive and freed when it is; at the end the bytes
//     allocated less the bytes freed are the bytes alive;
//   - a step lasts at least as long as its longest chain of ops and as its busiest stream.
class InvariantChecker final : public run::Listener {
 public:
  // REQUIRES: `program` outlives the checker.
  explicit InvariantChecker(const run::Program& program);

  // OK, or kInternal naming the first violation. Call when the run is over.
  Status Verdict();

  void OpBegun(const run::OpInstance&, SimTime) override;
  void OpIssued(const run::OpInstance&, SimTime) override;
  void OpStarted(const run::OpInstance&, SimTime) override;
  void OpEnded(const run::OpInstance&, SimTime) override;
  void BufferAllocated(run::BufferId, const run::OpInstance&, SimTime) override;
  void BufferFreed(run::BufferId, const run::OpInstance&, SimTime) override;
  void StepBegun(int32_t step, SimTime) override;
  void StepEnded(int32_t step, SimTime) override;

 private:
  enum class State : int8_t { kUnseen, kIssued, kRunning, kEnded };
  struct Seen {
    SimTime started{0};
    SimTime chain{0};  // longest chain of this step's ops that ends with this one
    int32_t step = 0;
    State state = State::kUnseen;
    bool on_stream = false;
    int64_t before_on_stream = -1;  // sequence of the op issued before it there, -1 = none
    int64_t before_in_group = -1;
    int32_t first_stream_wait = 0;  // in stream_wait_ops_
    int32_t stream_waits = 0;
  };
  struct StepTotals {
    SimTime begun{0};
    SimTime longest_chain{0};
    std::vector<SimTime> busy;  // by stream
  };

  void Clock(SimTime now);
  void Fail(const run::OpInstance& op, const std::string& what);
  void RecordPredecessors(const run::OpInstance& op, const run::OpRecord& record, Seen& seen);
  template <typename Visit>
  void ForEachPredecessor(const run::OpInstance& op, const Seen& seen, Visit visit);
  Seen& At(int64_t sequence);

  const run::Program& program_;
  std::string violation_;
  SimTime now_{0};
  std::vector<Seen> ops_;  // by sequence
  std::vector<int64_t> stream_wait_ops_;
  std::vector<int64_t> last_on_stream_;
  std::vector<int64_t> last_in_group_;
  std::vector<std::vector<int64_t>> records_;  // by event: the last op on its stream, every time
  std::vector<StepTotals> steps_;
  std::vector<bool> alive_;
  Bytes allocated_;
  Bytes freed_;
};

}  // namespace foreshard::sim
