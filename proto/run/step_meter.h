// Where the time of each step goes: busy compute, busy communication, communication that nothing
// hides, time per phase.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "proto/base/units.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::run {

inline constexpr int kPhases = 6;  // values of pb::Phase

// Times between the end of the step before (of the run's start) and the end of a step.
struct StepTime {
  SimTime duration{0};
  SimTime compute_busy{0};           // a compute stream runs an op
  SimTime communication_busy{0};     // a collective runs
  SimTime exposed_communication{0};  // a collective runs and no compute stream runs an op
  SimTime host_busy{0};              // issuing the ops of this step, whenever that was
  // On the compute streams and those of the host, from the end of the op before.
  std::array<SimTime, kPhases> phases{};
};

class StepMeter final : public Listener {
 public:
  // REQUIRES: `program` outlives the meter.
  explicit StepMeter(const Program& program) : program_(program) {}

  // Steps that have ended, in order.
  const std::vector<StepTime>& steps() const { return steps_; }

  void OpBegun(const OpInstance&, SimTime) override;
  void OpIssued(const OpInstance&, SimTime) override;
  void OpStarted(const OpInstance&, SimTime) override;
  void OpEnded(const OpInstance&, SimTime) override;
  void StepBegun(int32_t step, SimTime) override;
  void StepEnded(int32_t step, SimTime) override;

 private:
  void Advance(SimTime now);
  bool RunsOnCompute(const OpRecord& record) const;
  bool RunsOnHost(const OpRecord& record) const;

  const Program& program_;
  std::vector<StepTime> steps_;
  std::vector<SimTime> host_busy_;  // by step
  StepTime current_;
  SimTime begun_{0};  // when the host turned to the op that it is issuing
  SimTime now_{0};
  SimTime step_end_{0};
  SimTime phase_end_{0};  // of the last op that ended on a compute stream or the host's
  int computing_ = 0;
  int communicating_ = 0;
};

}  // namespace foreshard::run
