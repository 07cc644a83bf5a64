// Writes down every op of some steps of a run: when it ran and what it did to the device's memory.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::run {

class TimelineRecorder final : public Listener {
 public:
  // Adds the ops of `steps` to `timeline`, in issue order. Times count from the moment when the
  // host began to issue the op's step. REQUIRES: `plan`, `program` (the plan on the rank that is
  // watched) and `timeline` outlive the recorder; what is alive when the first event comes has not
  // settled.
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
  int64_t DeviceBytes(int32_t buffer) const;   // 0 for what lives on the host
  pb::TimelineOp* Find(const OpInstance& op);  // nullptr when its step is not kept
  static void Add(pb::Category category, int64_t bytes, Changes& changes);

  const pb::Plan& plan_;
  const Program& program_;
  const std::vector<int32_t> steps_;
  pb::Timeline& timeline_;
  // By sequence. An op may end on its stream before the host has freed what it frees.
  std::map<int64_t, pb::TimelineOp*> rows_;
  std::map<int32_t, SimTime> begun_;    // of the steps that are kept
  std::vector<pb::Category> category_;  // that each buffer counts as now
};

// A timeline without ops yet: the rank that `program` is of, names of the plan, sums by category of
// what is alive before the first op.
pb::Timeline NewTimeline(const pb::Plan& plan, const Program& program, int rank);

}  // namespace foreshard::run
