// A simulated run as a picture: what every stream and the host do when, and what memory holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/run/listener.h"
#include "tools/export/perfetto.h"

namespace foreshard {

// Draws the step `first` and two `steady` ones. Tracks, from the top: steps, the host as
// it issues ops, one for each stream of the plan, bytes alive in total and by category. Ops that
// take no time are left out on streams and are instants on the host. Bytes change when the host
// allocates and frees, so their time is the host's, as in the report.
class Timeline final : public run::Listener {
 public:
  // REQUIRES: `plan` has passed CheckPlan and outlives the timeline.
  explicit Timeline(const pb::Plan& plan);

  std::string Take();

  void OpBegun(const run::OpInstance&, SimTime) override;
  void OpIssued(const run::OpInstance&, SimTime) override;
  void OpStarted(const run::OpInstance&, SimTime) override;
  void OpEnded(const run::OpInstance&, SimTime) override;
  void BufferAllocated(run::BufferId, const run::OpInstance&, SimTime) override;
  void BufferFreed(run::BufferId, const run::OpInstance&, SimTime) override;
  void StepEnded(int32_t step, SimTime) override;

 private:
  struct Counter {
    PerfettoTrace::Track track{};
    int64_t bytes = 0;
    bool changed = false;  // since it was written
  };

  void AddCounters();
  bool Drawn(int32_t step) const { return step < steps_drawn_; }
  const pb::Op& OpOf(const run::OpInstance& op) const;
  std::string NameOf(const run::OpInstance& op) const;
  // `name` must outlive the event.
  PerfettoTrace::Event Describe(const run::OpInstance& op, const std::string& name) const;
  void Change(int buffer, int sign, SimTime at);
  void FlushCounters();

  const pb::Plan& plan_;
  PerfettoTrace trace_;
  const int steps_drawn_;
  PerfettoTrace::Track steps_{};
  PerfettoTrace::Track host_{};
  std::vector<PerfettoTrace::Track> streams_;
  std::vector<SimTime> started_;  // by stream, of the op that runs or ran last
  Counter total_;
  std::map<pb::Category, Counter> categories_;
  std::vector<pb::Category> category_;  // of each buffer, as settled
  SimTime counted_at_{0};               // of what was not written yet
  bool falling_ = false;                // the last change was a free
  SimTime begun_{0};                    // of the op that the host is at
  SimTime step_end_{0};                 // of the last step that ended
};

}  // namespace foreshard
