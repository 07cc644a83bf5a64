#include "sim/simulate.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "proto/base/check.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/cluster_check.h"
#include "sim/cost/roofline.h"
#include "sim/engine.h"
#include "sim/invariants.h"
#include "sim/memory_recorder.h"
#include "sim/program.h"
#include "sim/report_builder.h"
#include "sim/step_meter.h"
#include "sim/unit_meter.h"

namespace foreshard {
namespace {

using sim::ProgramId;

// Steady steps of the first attempt; two of them suffice unless queues take longer to settle, which
// the second attempt allows for.
constexpr int kSteadySteps[] = {3, 8};

Status CheckWorldFits(int world, const pb::Cluster& cluster) {
  const int gpus = cluster.node().gpus();
  const int needed = (world + gpus - 1) / gpus;
  if (!cluster.has_nodes() || needed <= cluster.nodes()) return OkStatus();
  return InvalidArgument(fmt::format(
      "world {} needs {} nodes of {}, cluster {} has {}: lower --world or raise `nodes` "
      "in the cluster's description",
      world, needed, gpus, cluster.name(), cluster.nodes()));
}

// The program that every later step runs: `steady`, or the only one.
ProgramId SteadyProgram(const pb::Plan& plan) {
  for (int i = 0; i < plan.programs_size(); ++i) {
    if (plan.programs(i).name() == "steady") return ProgramId{i};
  }
  return ProgramId{plan.programs_size() - 1};
}

// All programs up to the steady one, once each, and then the steady one again and again.
std::vector<ProgramId> StepList(ProgramId steady, int steady_steps) {
  std::vector<ProgramId> steps;
  for (int i = 0; i < static_cast<int>(steady); ++i) steps.push_back(ProgramId{i});
  steps.insert(steps.end(), static_cast<size_t>(steady_steps), steady);
  return steps;
}

bool LastTwoAgree(const std::vector<sim::StepTime>& steps) {
  return steps[steps.size() - 1].duration == steps[steps.size() - 2].duration;
}

struct Run {
  sim::StepMeter meter;
  sim::UnitMeter units;
  sim::MemoryRecorder memory;
  Run(const pb::Plan& plan, const sim::Program& program, int32_t recorded_steps)
      : meter(program), units(plan, program), memory(plan, program, recorded_steps) {}
};

void RunSteps(const sim::Program& program, const std::vector<ProgramId>& steps, Run& run) {
  sim::InvariantChecker invariants(program);
  sim::Listener* const listeners[] = {&invariants, &run.memory, &run.meter, &run.units};
  sim::Engine engine(program, listeners);
  engine.Run(steps);
  const Status verdict = invariants.Verdict();
  CHECK(verdict.ok()) << verdict.message();
}

pb::Report MakeReport(const pb::Plan& plan, const pb::Cluster& cluster, const Run& run,
                      ProgramId steady) {
  sim::ReportBuilder builder(plan, cluster);
  builder.AddSetup();
  builder.AddMemory(run.memory);
  // The last step but one: what its successor starts early is in its time.
  const std::vector<sim::StepTime>& steps = run.meter.steps();
  const size_t reported = steps.size() - 2;
  builder.AddTiming(steps[reported], steady);
  builder.AddUnits(run.units.steps()[reported], steady);
  builder.AddAssumptions(LastTwoAgree(steps));
  return builder.Take();
}

// Runs the steps once more, for others to see.
void Show(const sim::Program& program, const std::vector<ProgramId>& steps,
          std::span<sim::Listener* const> watchers) {
  if (watchers.empty()) return;
  sim::Engine engine(program, watchers);
  engine.Run(steps);
}

}  // namespace

StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster) {
  return Simulate(plan, cluster, {});
}

StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster,
                              std::span<sim::Listener* const> watchers) {
  RETURN_IF_ERROR(CheckCluster(cluster).At(cluster.name()));
  RETURN_IF_ERROR(CheckWorldFits(plan.mesh().world_size(), cluster));
  const sim::RooflineModel costs(plan, cluster);
  ASSIGN_OR_RETURN(const sim::Program program, sim::Compile(plan, costs));
  const ProgramId steady = SteadyProgram(plan);
  // Memory of the first steady step is that of all: the plan's steady rule.
  const int32_t recorded_steps = static_cast<int32_t>(steady) + 1;
  for (const int steady_steps : kSteadySteps) {
    Run run(plan, program, recorded_steps);
    RunSteps(program, StepList(steady, steady_steps), run);
    if (LastTwoAgree(run.meter.steps()) || steady_steps == kSteadySteps[1]) {
      Show(program, StepList(steady, steady_steps), watchers);
      return MakeReport(plan, cluster, run, steady);
    }
  }
  CHECK(false) << "the last attempt is always reported";
  return Internal("unreachable");
}

}  // namespace foreshard
