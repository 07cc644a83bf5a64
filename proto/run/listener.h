// What a run tells those who watch it. Memory, timing and invariants are all listeners.
#pragma once

#include <cstdint>

#include "proto/base/units.h"
#include "proto/run/ids.h"

namespace foreshard::run {

// One execution of an op.
struct OpInstance {
  int64_t sequence = 0;  // position in host order over the whole run, from 0
  int32_t step = 0;      // position in the list of steps that the engine was given
  ProgramId program{0};
  SegmentId segment{0};
  int32_t repetition = 0;  // of the segment within its use
  OpId op{0};
  int32_t position = 0;  // in the segment
};

// Calls come in time order; at one time, in the order the simulator acts.
class Listener {
 public:
  virtual ~Listener() = default;
  // The host turns to the op (and has waited for what it must): its buffers are allocated next.
  virtual void OpBegun(const OpInstance&, SimTime) {}
  // The op is on its stream's queue, or done if it has no stream: its frees follow.
  virtual void OpIssued(const OpInstance&, SimTime) {}
  // Ops with a stream only.
  virtual void OpStarted(const OpInstance&, SimTime) {}
  virtual void OpEnded(const OpInstance&, SimTime) {}
  virtual void BufferAllocated(BufferId, const OpInstance&, SimTime) {}
  virtual void BufferFreed(BufferId, const OpInstance&, SimTime) {}
  // The host begins to issue a step. / All ops of this and earlier steps are issued and ended.
  virtual void StepBegun(int32_t /*step*/, SimTime) {}
  virtual void StepEnded(int32_t /*step*/, SimTime) {}
};

}  // namespace foreshard::run
