#include "exec/measure.h"

#include <fmt/format.h>

#include <numeric>

#include "exec/environment.h"
#include "proto/run/memory_recorder.h"
#include "proto/run/report_builder.h"
#include "proto/run/step_meter.h"
#include "proto/run/timeline_recorder.h"
#include "proto/run/unit_meter.h"

namespace foreshard::exec {
namespace {

using Steps = std::vector<const StepLog*>;

// One step of each program: the steady one repeats.
Steps FirstOfAll(const pb::Plan& plan, const RankLog& log) {
  Steps steps;
  for (const StepLog& step : log.steps()) {
    if (step.step < plan.programs_size()) steps.push_back(&step);
  }
  return steps;
}

Steps LastTwo(const RankLog& log) {
  Steps steps;
  for (const StepLog& step : log.steps()) steps.push_back(&step);
  if (steps.size() > 2) steps.erase(steps.begin(), steps.end() - 2);
  return steps;
}

// Compares the device's own counts after each op with what allocations and frees add up to.
Status CheckBytes(const pb::Plan& plan, const RankRecord& rank) {
  const run::Program& program = rank.program;
  Bytes alive[2] = {Bytes{0}, Bytes{0}};  // on the device, on the host
  const auto of = [&](run::BufferId b) -> Bytes& {
    return alive[plan.buffers(static_cast<int>(b)).host()];
  };
  const auto bytes = [&](run::BufferId b) { return program.buffer_bytes[Index(b)]; };
  for (const run::BufferId b : program.resident) of(b) += bytes(b);
  for (const StepLog* step : FirstOfAll(plan, *rank.log)) {
    for (const OpLog& op : step->ops) {
      const run::OpRecord& record = program.op(op.op.op);
      for (const run::BufferId b : program.Buffers(record.allocs)) of(b) += bytes(b);
      for (const run::BufferId b : program.Buffers(record.frees)) of(b) -= bytes(b);
      if (alive[0].count() == op.device_bytes && alive[1].count() == op.host_bytes) continue;
      return Internal(
          fmt::format("after op {} of step {} the device holds {} bytes and the host {}, their "
                      "buffers {} and {}",
                      op.op.position, step->step, op.device_bytes, op.host_bytes, alive[0].count(),
                      alive[1].count()));
    }
  }
  return OkStatus();
}

run::Hardware HostAsHardware(const pb::Environment& host) {
  return {"this machine", host.device(), 1 << 20, Bytes(host.memory_bytes()), Bytes(0), 0};
}

// Memory of all ranks, and the first step of the one that is shown.
Status AddMemory(const pb::Plan& plan, std::span<const RankRecord> ranks, int report_rank,
                 run::ReportBuilder& builder, pb::Timeline& timeline) {
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    RETURN_IF_ERROR(CheckBytes(plan, ranks[r]).At(fmt::format("rank {}", r)));
    const Steps steps = FirstOfAll(plan, *ranks[r].log);
    run::MemoryRecorder memory(plan, ranks[r].program, static_cast<int32_t>(steps.size()));
    run::TimelineRecorder first(plan, ranks[r].program, {0}, timeline);
    std::vector<run::Listener*> listeners = {&memory};
    if (r == report_rank) listeners.push_back(&first);
    Tell(steps, ranks[r].program, listeners);
    builder.AddRank(r, memory);
    if (r == report_rank) builder.AddMemory(memory);
  }
  return OkStatus();
}

// The last step, with the one before it as its background.
void AddTimes(const pb::Plan& plan, const RankRecord& shown, run::ReportBuilder& builder,
              pb::Timeline& timeline) {
  const Steps steps = LastTwo(*shown.log);
  const int32_t last = static_cast<int32_t>(steps.size()) - 1;
  run::StepMeter meter(shown.program);
  run::UnitMeter units(plan, shown.program);
  std::vector<int32_t> kept;
  if (last > 0) kept.push_back(last);  // a run of one step has it already
  run::TimelineRecorder again(plan, shown.program, kept, timeline);
  run::Listener* const listeners[] = {&meter, &units, &again};
  Tell(steps, shown.program, listeners);
  const run::ProgramId program{steps.back()->program};
  builder.AddTiming(meter.steps()[last], program);
  builder.AddUnits(units.steps()[last], program);
}

}  // namespace

StatusOr<pb::Report> Measure(const pb::Plan& plan, std::span<const RankRecord> ranks,
                             int report_rank) {
  const RankRecord& shown = ranks[report_rank];
  const pb::Environment host = DescribeHost();
  run::ReportBuilder builder(plan, shown.program, HostAsHardware(host), pb::Report::MEASURED);
  builder.AddSetup(report_rank);
  pb::Timeline timeline = run::NewTimeline(plan, shown.program, report_rank);
  RETURN_IF_ERROR(AddMemory(plan, ranks, report_rank, builder, timeline));
  AddTimes(plan, shown, builder, timeline);
  pb::Report report = builder.Take();
  *report.mutable_environment() = host;
  *report.mutable_timeline() = std::move(timeline);
  return report;
}

pb::Timeline TimelineOf(const pb::Plan& plan, const RankRecord& record, int rank) {
  pb::Timeline timeline = run::NewTimeline(plan, record.program, rank);
  const Steps steps = FirstOfAll(plan, *record.log);
  std::vector<int32_t> kept(steps.size());
  std::iota(kept.begin(), kept.end(), 0);
  run::TimelineRecorder recorder(plan, record.program, kept, timeline);
  run::Listener* const listeners[] = {&recorder};
  Tell(steps, record.program, listeners);
  return timeline;
}

}  // namespace foreshard::exec
