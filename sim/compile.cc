#include "sim/compile.h"

#include <fmt/core.h>

#include "proto/plan.pb.h"

namespace foreshard::sim {
namespace {

// Written so that NaN is refused too.
bool IsReasonable(Seconds time) { return time >= Seconds(0) && time <= kLongestProgram; }

Status PriceSegment(const pb::Segment& segment, const CostModel& costs,
                    const run::SegmentRecord& place, run::Program& program) {
  for (int i = 0; i < segment.ops_size(); ++i) {
    const pb::Op& op = segment.ops(i);
    const OpCost cost = costs.Price(op);
    if (!IsReasonable(cost.host) || !IsReasonable(cost.device)) {
      return InvalidArgument(
          fmt::format("segment \"{}\" op {} ({}) would take {} s on this hardware", segment.name(),
                      i, run::KindName(op), (cost.host + cost.device).count()));
    }
    run::OpRecord& record = program.ops[Index(place.first) + i];
    record.host = ToSimTime(cost.host);
    record.device = ToSimTime(cost.device);
  }
  return OkStatus();
}

// Sum of all its ops, one after the other.
Seconds LongestTime(const run::Program& program, const std::vector<run::UseRecord>& uses) {
  Seconds total{0};
  for (const run::UseRecord& use : uses) {
    const run::SegmentRecord& segment = program.segments[Index(use.segment)];
    Seconds once{0};
    for (int32_t i = 0; i < segment.size; ++i) {
      const run::OpRecord& op = program.ops[Index(segment.first) + i];
      once += op.host + op.device;
    }
    total += use.repeat * once;
  }
  return total;
}

}  // namespace

StatusOr<run::Program> Compile(const pb::Plan& plan, const CostModel& costs, int rank) {
  run::Program program = run::Flatten(plan, rank);
  for (int s = 0; s < plan.segments_size(); ++s) {
    RETURN_IF_ERROR(PriceSegment(plan.segments(s), costs, program.segments[s], program));
  }
  for (int p = 0; p < plan.programs_size(); ++p) {
    const Seconds longest = LongestTime(program, program.programs[p]);
    if (!IsReasonable(longest)) {
      return InvalidArgument(fmt::format("program \"{}\" would take up to {} s on this hardware",
                                         plan.programs(p).name(), longest.count()));
    }
  }
  return program;
}

}  // namespace foreshard::sim
