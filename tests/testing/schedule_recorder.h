// Remembers when every op of a run was issued, started and ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "proto/run/listener.h"
#include "proto/run/program.h"
#include "sim/engine.h"
#include "sim/invariants.h"

namespace foreshard::sim {

struct RecordedOp {
  run::OpInstance instance;
  int64_t issued = -1;  // picoseconds, -1 = never
  int64_t started = -1;
  int64_t ended = -1;
};

class ScheduleRecorder final : public run::Listener {
 public:
  std::vector<RecordedOp> ops;       // in host order
  std::vector<int64_t> step_begins;  // by step
  std::vector<int64_t> step_ends;

  void OpIssued(const run::OpInstance& op, SimTime now) override {
    ops.resize(std::max(ops.size(), static_cast<size_t>(op.sequence) + 1));
    ops[op.sequence].instance = op;
    ops[op.sequence].issued = now.count();
  }
  void OpStarted(const run::OpInstance& op, SimTime now) override {
    ops[op.sequence].started = now.count();
  }
  void OpEnded(const run::OpInstance& op, SimTime now) override {
    ops[op.sequence].ended = now.count();
  }
  void StepBegun(int32_t, SimTime now) override { step_begins.push_back(now.count()); }
  void StepEnded(int32_t, SimTime now) override { step_ends.push_back(now.count()); }
};

struct RecordedRun {
  ScheduleRecorder schedule;
  SimTime end{0};
  Status verdict;
};

inline RecordedRun RunRecorded(const run::Program& program, const std::vector<int>& steps) {
  RecordedRun run;
  InvariantChecker invariants(program);
  run::Listener* const listeners[] = {&run.schedule, &invariants};
  std::vector<run::ProgramId> ids;
  for (int step : steps) ids.push_back(run::ProgramId{step});
  run.end = Engine(program, listeners).Run(ids);
  run.verdict = invariants.Verdict();
  return run;
}

}  // namespace foreshard::sim
