// Fills a Report from what the listeners of a run saw.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/memory_recorder.h"
#include "sim/step_meter.h"
#include "sim/unit_meter.h"

namespace foreshard::sim {

class ReportBuilder {
 public:
  // REQUIRES: both outlive the builder.
  ReportBuilder(const pb::Plan& plan, const pb::Cluster& cluster);

  void AddSetup();
  // Fit, peak and phases.
  void AddMemory(const MemoryRecorder& memory);
  // Timing of one step of `program`, and its collectives.
  void AddTiming(const StepTime& step, ProgramId program);
  // What each unit did in that step: one entry a unit of the plan.
  void AddUnits(const std::vector<UnitTime>& units, ProgramId program);
  // `settled`: two successive steps took the same time.
  void AddAssumptions(bool settled);

  pb::Report Take() { return std::move(report_); }

 private:
  pb::OpRef Refer(const OpInstance& op) const;
  void AddPeak(const MemoryRecorder& memory);
  void AddFit(Bytes peak);
  void AddPhase(const PhaseWatermarks& phase, const PhaseId& id, const MemoryRecorder& memory);
  void AddCollectives(ProgramId program);
  void AddUnitTraffic(ProgramId program);
  std::string OwnerOf(const pb::Buffer& buffer, pb::Category category) const;

  const pb::Plan& plan_;
  const pb::Cluster& cluster_;
  pb::Report report_;
};

// Element type of the model's arithmetic.
pb::DType ComputeType(const pb::Decisions& decisions);

// Micro-batches of one step: how often the program turns to a forward.
int64_t MicroBatches(const pb::Plan& plan, ProgramId program);

}  // namespace foreshard::sim
