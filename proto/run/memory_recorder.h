// Feeds the memory replay from a run and remembers which op each moment belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/run/listener.h"
#include "proto/run/memory_replay.h"
#include "proto/run/program.h"

namespace foreshard::run {

// Buffers differ by category and by whether they belong to the logits.
int MemoryClass(pb::Category category, bool logits);
pb::Category CategoryOf(int memory_class);
bool IsLogits(int memory_class);
// What the sharding itself holds: parameters, gathers, gradients, reductions, optimizer state.
bool IsManaged(pb::Category category);

struct PhaseId {
  int32_t step = 0;
  ProgramId program{0};
  pb::Phase phase = pb::PHASE_UNSPECIFIED;
  int32_t micro_batch = 0;
  friend bool operator==(const PhaseId&, const PhaseId&) = default;
};

class MemoryRecorder final : public Listener {
 public:
  // Records the first `steps` steps; the later ones repeat the last of them. REQUIRES: `plan` and
  // `program` outlive the recorder.
  MemoryRecorder(const pb::Plan& plan, const Program& program, int32_t steps);

  const MemoryReplay& replay() const { return replay_; }
  // Of the host's page-locked memory, which is no part of replay() and has no phases.
  const MemoryReplay& host_replay() const { return host_replay_; }
  // Of replay().phases(), in the same order.
  const std::vector<PhaseId>& phase_ids() const { return phase_ids_; }
  // The op of a watermark. REQUIRES: not kNoOp.
  const OpInstance& OpAt(int64_t op) const { return ops_[static_cast<size_t>(op)]; }

  void OpBegun(const OpInstance&, SimTime) override;
  void OpIssued(const OpInstance&, SimTime) override;
  void BufferAllocated(BufferId, const OpInstance&, SimTime) override;
  void BufferFreed(BufferId, const OpInstance&, SimTime) override;
  void StepEnded(int32_t step, SimTime) override;

 private:
  MemoryReplay& ReplayOf(int32_t buffer);

  const pb::Plan& plan_;
  const Program& program_;
  int32_t recorded_steps_;
  MemoryReplay replay_;
  MemoryReplay host_replay_;
  std::vector<PhaseId> phase_ids_;
  std::vector<OpInstance> ops_;  // those that allocate or settle
  int64_t Remember(const OpInstance& op);
  struct Settlement {
    SegmentId segment;
    int32_t position;  // in the segment
    int32_t buffer;
    pb::Category category;
  };
  std::vector<Settlement> settlements_;  // of the plan; few
};

}  // namespace foreshard::run
