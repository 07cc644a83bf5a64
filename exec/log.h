// What one rank did and when, for those steps that somebody will ask about.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "exec/device.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::exec {

// One op. Times in nanoseconds of the device's clock.
struct OpLog {
  run::OpInstance op;
  int64_t begun = 0;         // the host turned to it, its buffers are allocated
  int64_t issued = 0;        // it is queued, its frees follow
  int64_t device_bytes = 0;  // by the device's own count, after the frees
  int64_t host_bytes = 0;    // likewise
  TimeSpan span;             // of ops that put work on a stream
};

struct StepLog {
  int step = 0;
  int program = 0;
  int64_t begun = 0;
  std::deque<OpLog> ops;  // in issue order; they stay where they are
};

// Keeps the first steps, one of each program, and the last two of a run.
class RankLog {
 public:
  RankLog(int steps, int programs) : steps_(steps), programs_(programs) {}

  void BeginStep(int step, int program, int64_t now);
  // nullptr when this step is not kept.
  OpLog* AddOp(const run::OpInstance& op, int64_t now);
  const std::deque<StepLog>& steps() const { return kept_; }

 private:
  const int steps_;
  const int programs_;
  bool keeps_ = false;
  std::deque<StepLog> kept_;
};

// Tells the listeners of `steps`, in time order, as if they were steps 0, 1, ... of a run that
// began with the first of them. REQUIRES: everything has ended.
void Tell(std::span<const StepLog* const> steps, const run::Program& program,
          std::span<run::Listener* const> listeners);

}  // namespace foreshard::exec
