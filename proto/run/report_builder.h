// Fills a Report from what the listeners of a run saw.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/memory_recorder.h"
#include "proto/run/step_meter.h"
#include "proto/run/unit_meter.h"

namespace foreshard::run {

// What a report says of the hardware; empty and 0 where nothing is known.
struct Hardware {
  std::string cluster;
  std::string device;
  int devices_per_node = 1;
  Bytes memory{0};   // of a device
  Bytes reserve{0};  // of it, for others
  double peak_flops_per_second = 0;
};

class ReportBuilder {
 public:
  // REQUIRES: `plan` and `program`, the same on the rank reported about, outlive the builder.
  ReportBuilder(const pb::Plan& plan, const Program& program, Hardware hardware,
                pb::Report::Source source);

  void AddSetup(int rank = 0);  // the one that `program` is of
  // Fit, peak, phases and what is kept on the host.
  void AddMemory(const MemoryRecorder& memory);
  // Memory of one rank, told apart from those added before if it differs; of `count` ranks at once
  // that are known to be alike. Ranks come in ascending order.
  void AddRank(int rank, const MemoryRecorder& memory, int count = 1);
  // Timing of one step of `program`, and its collectives.
  void AddTiming(const StepTime& step, ProgramId program);
  // What each unit did in that step: one entry a unit of the plan.
  void AddUnits(const std::vector<UnitTime>& units, ProgramId program);

  pb::Report Take() { return std::move(report_); }

 private:
  pb::OpRef Refer(const OpInstance& op) const;
  void AddPeak(const MemoryRecorder& memory);
  void AddFit(Bytes peak);
  void AddPersistent(const MemoryRecorder& memory);
  void AddPhase(const PhaseWatermarks& phase, const PhaseId& id, const MemoryRecorder& memory);
  void AddCollectives(ProgramId program);
  void AddUnitTraffic(ProgramId program);
  std::string OwnerOf(const pb::Buffer& buffer, pb::Category category) const;

  const pb::Plan& plan_;
  const Program& program_;
  const Hardware hardware_;
  pb::Report report_;
};

// Element type of the model's arithmetic.
pb::DType ComputeType(const pb::Decisions& decisions);

// Micro-batches of one step: those with a forward.
int64_t MicroBatches(const pb::Plan& plan, ProgramId program);

}  // namespace foreshard::run
