// What the collectives of each unit take of a step, and how long its gathered parameters live.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/base/units.h"
#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::pb {
class Op;
class Plan;
}  // namespace foreshard::pb

namespace foreshard::run {

// One kind of collective of one unit, between the end of the step before and the end of a step.
struct CollectiveTime {
  int32_t count = 0;  // issued for this step, whenever they ran
  SimTime running{0};
  SimTime exposed{0};  // ... while no compute stream runs an op, and as the first to have started
};

struct UnitTime {
  CollectiveTime gather;
  CollectiveTime reduce;
  CollectiveTime all_reduce;  // over replicas
  // Some of its unsharded parameters are alive, by the host's clock: from the moment when the host
  // begins to issue the step to when it begins the next. The last step of a run has no such end.
  SimTime resident{0};
};

class UnitMeter final : public Listener {
 public:
  // REQUIRES: `program` outlives the meter and was compiled from `plan`.
  UnitMeter(const pb::Plan& plan, const Program& program);

  // Steps in order, in each the units in plan order.
  const std::vector<std::vector<UnitTime>>& steps() const { return steps_; }

  void OpIssued(const OpInstance&, SimTime) override;
  void OpStarted(const OpInstance&, SimTime) override;
  void OpEnded(const OpInstance&, SimTime) override;
  void BufferAllocated(BufferId, const OpInstance&, SimTime) override;
  void BufferFreed(BufferId, const OpInstance&, SimTime) override;
  void StepBegun(int32_t step, SimTime) override;
  void StepEnded(int32_t step, SimTime) override;

 private:
  static constexpr int32_t kNoUnit = -1;
  // Of an op: the unit whose collective it is.
  struct Source {
    int32_t unit = kNoUnit;
    CollectiveTime UnitTime::*time = nullptr;
  };
  struct Alive {
    int32_t buffers = 0;
    SimTime since{0};
  };

  static Source SourceOf(const pb::Op& op);
  void Advance(SimTime now);
  CollectiveTime& TimeOf(const Source& source, int32_t step);
  bool RunsOnCompute(const OpRecord& record) const;

  const Program& program_;
  std::vector<Source> source_;          // by op
  std::vector<int32_t> unit_of_param_;  // by buffer; kNoUnit = no unsharded parameter
  std::vector<std::vector<UnitTime>> steps_;
  std::vector<OpInstance> running_;  // collectives, in the order they started
  std::vector<Alive> alive_;         // by unit
  int32_t begun_ = -1;               // the step that the host is in
  int32_t device_step_ = 0;          // the first that has not ended
  SimTime now_{0};
  int computing_ = 0;
};

}  // namespace foreshard::run
