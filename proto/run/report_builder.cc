#include "proto/run/report_builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "proto/base/dtype.h"
#include "proto/run/program.h"

namespace foreshard::run {
namespace {

// What a collective moves, counted on one rank.
struct Moved {
  int64_t count = 0;
  int64_t input = 0;
  int64_t output = 0;
  int64_t wire = 0;
};

bool IsCollective(const pb::Op& op) {
  return op.has_all_gather() || op.has_reduce_scatter() || op.has_all_reduce() ||
         op.has_broadcast();
}

// A ring passes on every slice of the whole buffer but one: (n-1)/n of it; an all-reduce twice, to
// reduce and to gather; a broadcast all of it once. REQUIRES: the op is a collective.
Moved Traffic(const pb::Plan& plan, const pb::Op& op) {
  if (op.has_all_gather()) {
    const pb::AllGather& gather = op.all_gather();
    const int64_t size = SizeOf(static_cast<DType>(gather.dtype()));
    const int64_t others = plan.groups(gather.group()).size() - 1;
    return {1, gather.elems_in() * size, gather.elems_out() * size,
            gather.elems_in() * size * others};
  }
  if (op.has_reduce_scatter()) {
    const pb::ReduceScatter& reduce = op.reduce_scatter();
    const int64_t size = SizeOf(static_cast<DType>(reduce.dtype()));
    const int64_t others = plan.groups(reduce.group()).size() - 1;
    return {1, reduce.elems_in() * size, reduce.elems_out() * size,
            reduce.elems_out() * size * others};
  }
  if (op.has_broadcast()) {
    const pb::Broadcast& send = op.broadcast();
    const int64_t bytes = send.elems() * SizeOf(static_cast<DType>(send.dtype()));
    return {1, bytes, bytes, plan.groups(send.group()).size() > 1 ? bytes : 0};
  }
  const pb::AllReduce& reduce = op.all_reduce();
  const int64_t bytes = reduce.elems() * SizeOf(static_cast<DType>(reduce.dtype()));
  const int64_t ranks = plan.groups(reduce.group()).size();
  return {1, bytes, bytes, 2 * (bytes / ranks * (ranks - 1) + bytes % ranks * (ranks - 1) / ranks)};
}

}  // namespace

pb::DType ComputeType(const pb::Decisions& decisions) {
  for (pb::DType dtype : {decisions.param_dtype(), decisions.original_dtype()}) {
    if (dtype == pb::FP32 || dtype == pb::BF16 || dtype == pb::FP16) return dtype;
  }
  return pb::FP32;
}

int64_t MicroBatches(const pb::Plan& plan, ProgramId program) {
  int64_t count = 0;
  for (const pb::SegmentUse& use : plan.programs(static_cast<int>(program)).uses()) {
    std::set<int32_t> forwards;
    for (const pb::Op& op : plan.segments(use.segment()).ops()) {
      if (op.phase() == pb::FORWARD) forwards.insert(op.micro_batch());
    }
    count += int64_t{use.repeat()} * static_cast<int64_t>(forwards.size());
  }
  return count;
}

ReportBuilder::ReportBuilder(const pb::Plan& plan, const Program& program, Hardware hardware,
                             pb::Report::Source source)
    : plan_(plan), program_(program), hardware_(std::move(hardware)) {
  report_.set_schema_version(1);
  report_.set_tool_version(plan.header().tool_version());
  report_.set_source(source);
}

void ReportBuilder::AddSetup(int rank) {
  pb::Setup& setup = *report_.mutable_setup();
  setup.set_model(plan_.header().model_name());
  setup.set_parameters(plan_.header().parameter_count());
  setup.set_cluster(hardware_.cluster);
  setup.set_gpu(hardware_.device);
  setup.set_world_size(plan_.mesh().world_size());
  for (int left = plan_.mesh().world_size(); left > 0; left -= hardware_.devices_per_node) {
    setup.add_ranks_per_node(std::min(left, hardware_.devices_per_node));
  }
  setup.set_units(plan_.units_size());
  setup.set_micro_batch(plan_.decisions().micro_batch());
  setup.set_seq(plan_.decisions().seq());
  setup.set_wrap_policy(plan_.decisions().wrap_policy());
  setup.set_reshard_after_forward(plan_.decisions().reshard_after_forward());
  setup.set_replicate_size(plan_.mesh().replicate_size());
  const int steady = plan_.programs_size() - 1;
  if (steady >= 0)
    setup.set_micro_batches(static_cast<int32_t>(MicroBatches(plan_, ProgramId{steady})));
  setup.set_rank(rank);
}

pb::OpRef ReportBuilder::Refer(const OpInstance& instance) const {
  const pb::Segment& segment = plan_.segments(static_cast<int>(instance.segment));
  const pb::Op& op = segment.ops(instance.position);
  pb::OpRef ref;
  ref.set_program(plan_.programs(static_cast<int>(instance.program)).name());
  ref.set_segment(segment.name());
  ref.set_repetition(instance.repetition);
  ref.set_op(instance.position);
  ref.set_kind(KindName(op));
  if (op.has_compute()) ref.set_kernel(plan_.kernels(op.compute().kernel()).name());
  if (op.has_unit()) ref.set_unit(plan_.units(op.unit()).name());
  if (op.has_module()) ref.set_module(plan_.modules(op.module()).path());
  ref.set_phase(op.phase());
  return ref;
}

void ReportBuilder::AddTiming(const StepTime& step, ProgramId program) {
  pb::Timing& timing = *report_.mutable_timing();
  timing.set_calibrated(false);
  timing.set_step_ps(step.duration.count());
  timing.set_compute_busy_ps(step.compute_busy.count());
  timing.set_communication_busy_ps(step.communication_busy.count());
  timing.set_exposed_communication_ps(step.exposed_communication.count());
  timing.set_host_busy_ps(step.host_busy.count());
  const pb::Decisions& decisions = plan_.decisions();
  const double micro_batches = static_cast<double>(MicroBatches(plan_, program));
  timing.set_model_flops_per_step(plan_.header().model_flops() * micro_batches);
  timing.set_peak_flops_per_second(hardware_.peak_flops_per_second);
  if (const double seconds = Seconds(step.duration).count(); seconds > 0) {
    const double tokens = static_cast<double>(decisions.micro_batch()) *
                          static_cast<double>(decisions.seq()) * micro_batches;
    timing.set_tokens_per_second_per_gpu(tokens / seconds);
    if (hardware_.peak_flops_per_second > 0) {
      timing.set_mfu(timing.model_flops_per_step() / seconds / hardware_.peak_flops_per_second);
    }
  }
  for (int phase = 0; phase < kPhases; ++phase) {
    if (step.phases[phase].count() == 0) continue;
    pb::PhaseTime& time = *timing.add_phases();
    time.set_phase(static_cast<pb::Phase>(phase));
    time.set_duration_ps(step.phases[phase].count());
  }
  AddCollectives(program);
}

void ReportBuilder::AddCollectives(ProgramId program) {
  std::map<std::pair<std::string, int>, Moved> totals;
  for (const pb::SegmentUse& use : plan_.programs(static_cast<int>(program)).uses()) {
    for (const pb::Op& op : plan_.segments(use.segment()).ops()) {
      if (!IsCollective(op)) continue;
      const Moved moved = Traffic(plan_, op);
      Moved& total = totals[{KindName(op), op.phase()}];
      total.count += use.repeat();
      total.input += use.repeat() * moved.input;
      total.output += use.repeat() * moved.output;
      total.wire += use.repeat() * moved.wire;
    }
  }
  for (const auto& [key, total] : totals) {
    pb::CollectiveTotal& out = *report_.add_collectives();
    out.set_kind(key.first);
    out.set_phase(static_cast<pb::Phase>(key.second));
    out.set_count(total.count);
    out.set_input_bytes(total.input);
    out.set_output_bytes(total.output);
    out.set_wire_bytes(total.wire);
  }
}

}  // namespace foreshard::run
