#include "sim/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/units_text.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/memory_recorder.h"
#include "proto/run/report_builder.h"
#include "proto/run/step_meter.h"
#include "proto/run/timeline_recorder.h"
#include "proto/run/unit_meter.h"
#include "sim/cluster_check.h"
#include "sim/compile.h"
#include "sim/cost/roofline.h"
#include "sim/engine.h"
#include "sim/invariants.h"
#include "sim/rank_memory.h"

namespace foreshard {
namespace {

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

Status CheckRank(int rank, int world) {
  if (0 <= rank && rank < world) return OkStatus();
  return InvalidArgument(
      fmt::format("rank {} of a plan for {} ranks, expected 0 to {}", rank, world, world - 1));
}

bool UsesHost(const pb::Plan& plan) {
  return std::ranges::any_of(plan.buffers(), [](const pb::Buffer& b) { return b.host(); });
}

Status CheckHostRates(const pb::Plan& plan, const pb::Cluster& cluster) {
  if (!UsesHost(plan)) return OkStatus();
  std::string_view missing;
  if (cluster.host().memory_bytes_per_second() == 0) missing = "host.memory_bytes_per_second";
  if (cluster.host().copy_bytes_per_second() == 0) missing = "host.copy_bytes_per_second";
  if (missing.empty()) return OkStatus();
  return InvalidArgument(fmt::format(
      "the plan keeps tensors on the host, and cluster {} does not say {}: add it to the "
      "cluster's description",
      cluster.name(), missing));
}

// The program that every later step runs.
run::ProgramId SteadyProgram(const pb::Plan& plan) {
  return run::ProgramId{plan.programs_size() - 1};
}

// All programs up to the steady one, once each, and then the steady one again and again.
std::vector<run::ProgramId> StepList(run::ProgramId steady, int steady_steps) {
  std::vector<run::ProgramId> steps;
  for (int i = 0; i < static_cast<int>(steady); ++i) steps.push_back(run::ProgramId{i});
  steps.insert(steps.end(), static_cast<size_t>(steady_steps), steady);
  return steps;
}

// The last step but one: what its successor starts early is in its time.
size_t Reported(size_t steps) { return steps - 2; }

bool LastTwoAgree(const std::vector<run::StepTime>& steps) {
  return steps[steps.size() - 1].duration == steps[steps.size() - 2].duration;
}

struct Run {
  run::StepMeter meter;
  run::UnitMeter units;
  run::MemoryRecorder memory;
  Run(const pb::Plan& plan, const run::Program& program, int32_t recorded_steps)
      : meter(program), units(plan, program), memory(plan, program, recorded_steps) {}
};

void RunSteps(const run::Program& program, const std::vector<run::ProgramId>& steps, Run& run) {
  sim::InvariantChecker invariants(program);
  run::Listener* const listeners[] = {&invariants, &run.memory, &run.meter, &run.units};
  sim::Engine engine(program, listeners);
  engine.Run(steps);
  const Status verdict = invariants.Verdict();
  CHECK(verdict.ok()) << verdict.message();
}

run::Hardware HardwareOf(const pb::Plan& plan, const pb::Cluster& cluster) {
  const pb::Gpu& gpu = cluster.gpu();
  return {cluster.name(),
          gpu.name(),
          cluster.node().gpus(),
          Bytes(gpu.memory_bytes()),
          Bytes(gpu.reserve_bytes()),
          sim::PeakFlops(gpu, run::ComputeType(plan.decisions())).count()};
}

void AddAssumptions(const pb::Plan& plan, const pb::Cluster& cluster, bool settled,
                    pb::Report& report) {
  const pb::Efficiency& efficiency = cluster.gpu().efficiency();
  report.mutable_assumptions()->CopyFrom(plan.decisions().assumptions());
  report.add_assumptions(
      "time: roofline kernels and rings of constant rate, first order, not calibrated");
  report.add_assumptions(fmt::format(
      "shares of peak: matrix products {}, attention {}, memory {} (origins in the cluster's file)",
      efficiency.matmul(), efficiency.attention(), efficiency.memory()));
  report.add_assumptions(
      fmt::format("reserve: {} for context, communicators and libraries is declared, not modelled",
                  FormatBytes(Bytes(cluster.gpu().reserve_bytes()))));
  if (UsesHost(plan)) {
    report.add_assumptions(
        fmt::format("host: {} GB/s between it and a GPU, {} GB/s of its memory for each GPU's work",
                    cluster.host().copy_bytes_per_second() / 1e9,
                    cluster.host().memory_bytes_per_second() / 1e9));
  }
  report.add_assumptions("peak: what the program allocates, not what an allocator keeps beyond");
  report.add_assumptions("ranks are identical; communication and compute do not slow each other");
  if (!settled) {
    report.add_assumptions("successive steps still differ in time; one of the last is reported");
  }
}

pb::Report MakeReport(const pb::Plan& plan, const pb::Cluster& cluster, const run::Program& program,
                      int rank, const Run& run, run::ProgramId steady) {
  run::ReportBuilder builder(plan, program, HardwareOf(plan, cluster), pb::Report::PREDICTED);
  builder.AddSetup(rank);
  builder.AddMemory(run.memory);
  sim::AddRanks(plan, builder);
  const std::vector<run::StepTime>& steps = run.meter.steps();
  const size_t reported = Reported(steps.size());
  builder.AddTiming(steps[reported], steady);
  builder.AddUnits(run.units.steps()[reported], steady);
  pb::Report report = builder.Take();
  AddAssumptions(plan, cluster, LastTwoAgree(steps), report);
  return report;
}

// Runs the steps once more, for others to see.
void Show(const pb::Plan& plan, const run::Program& program,
          const std::vector<run::ProgramId>& steps, const SimulateOptions& options,
          pb::Report& report) {
  std::vector<run::Listener*> watchers(options.watchers.begin(), options.watchers.end());
  pb::Timeline timeline = run::NewTimeline(plan, program, options.rank);
  run::TimelineRecorder recorder(plan, program, {0, static_cast<int32_t>(Reported(steps.size()))},
                                 timeline);
  if (options.has_timeline) watchers.push_back(&recorder);
  if (watchers.empty()) return;
  sim::Engine engine(program, watchers);
  engine.Run(steps);
  if (options.has_timeline) *report.mutable_timeline() = std::move(timeline);
}

}  // namespace

StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster,
                              const SimulateOptions& options) {
  RETURN_IF_ERROR(CheckCluster(cluster).At(cluster.name()));
  RETURN_IF_ERROR(CheckWorldFits(plan.mesh().world_size(), cluster));
  RETURN_IF_ERROR(CheckHostRates(plan, cluster));
  RETURN_IF_ERROR(CheckRank(options.rank, plan.mesh().world_size()));
  const sim::RooflineModel costs(plan, cluster);
  ASSIGN_OR_RETURN(const run::Program program, sim::Compile(plan, costs, options.rank));
  const run::ProgramId steady = SteadyProgram(plan);
  // Memory of the first steady step is that of all: the plan's steady rule.
  const int32_t recorded_steps = static_cast<int32_t>(steady) + 1;
  for (const int steady_steps : kSteadySteps) {
    const std::vector<run::ProgramId> steps = StepList(steady, steady_steps);
    Run run(plan, program, recorded_steps);
    RunSteps(program, steps, run);
    if (LastTwoAgree(run.meter.steps()) || steady_steps == kSteadySteps[1]) {
      pb::Report report = MakeReport(plan, cluster, program, options.rank, run, steady);
      Show(plan, program, steps, options, report);
      return report;
    }
  }
  CHECK(false) << "the last attempt is always reported";
  return Internal("unreachable");
}

}  // namespace foreshard
