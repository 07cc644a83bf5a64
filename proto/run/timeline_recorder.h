// Writes down every op of some steps of a run: when it ran and what it did to memory.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::run {

class TimelineRecorder final : public Listener {
 public:
  // Adds the ops of `steps` to `timeline`, in issue order. REQUIRES: `plan`, `program` (the plan on
  // the rank that is watched) and `timeline` outlive the recorder.
  TimelineRecorder(const pb::Plan& plan, const Program& program, std::vector<int32_t> steps,
                   pb::Timeline& timeline);

  void OpBegun(const OpInstance&, SimTime) override;
  void OpIssued(const OpInstance&, SimTime) override;
  void OpStarted(const OpInstance&, SimTime) override;
  void OpEnded(const OpInstance&, SimTime) override;
  void BufferAllocated(BufferId, const OpInstance&, SimTime) override;
  void BufferFreed(BufferId, const OpInstance&, SimTime) override;
  void StepBegun(int32_t step, SimTime) override;

 private:
  using Changes = google::protobuf::RepeatedPtrField<pb::CategoryBytes>;

  bool Keeps(int32_t step) const;
  pb::TimelineOp* Find(const OpInstance& op);  // nullptr when its step is not kept
  static void Add(pb::Category category, int64_t bytes, Changes& changes);

  const pb::Plan& plan_;
  const Program& program_;
  const std::vector<int32_t> steps_;
  pb::Timeline& timeline_;
  std::map<int64_t, pb::TimelineOp*> open_;  // by sequence, until they have ended
  std::map<int32_t, SimTime> begun_;         // of the steps that are kept
  std::vector<pb::Category> category_;       // that each buffer counts as now
};

// Sums by category of what is alive before the first op.
void FillResident(const pb::Plan& plan, const Program& program, pb::Timeline& timeline);

}  // namespace foreshard::run
