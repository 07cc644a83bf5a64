// The part of the report that tells units apart.
#include <algorithm>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/dtype.h"
#include "proto/run/report_builder.h"

namespace foreshard::run {

void ReportBuilder::AddUnits(const std::vector<UnitTime>& units, ProgramId program) {
  CHECK_EQ(static_cast<int>(units.size()), plan_.units_size());
  for (int u = 0; u < plan_.units_size(); ++u) {
    const UnitTime& time = units[u];
    pb::UnitReport& out = *report_.add_units();
    out.set_name(plan_.units(u).name());
    out.set_parameters(plan_.units(u).numel());
    out.set_gathers(time.gather.count);
    out.set_reductions(time.reduce.count);
    out.set_gather_ps(time.gather.running.count());
    out.set_exposed_gather_ps(time.gather.exposed.count());
    out.set_reduce_ps(time.reduce.running.count());
    out.set_exposed_reduce_ps(time.reduce.exposed.count());
    out.set_all_reduce_ps(time.all_reduce.running.count());
    out.set_exposed_all_reduce_ps(time.all_reduce.exposed.count());
    out.set_resident_ps(time.resident.count());
  }
  for (int b = 0; b < plan_.buffers_size(); ++b) {
    const pb::Buffer& buffer = plan_.buffers(b);
    if (buffer.category() != pb::SHARDED_PARAM || !buffer.has_unit()) continue;
    pb::UnitReport& out = *report_.mutable_units(buffer.unit());
    out.set_shard_bytes(out.shard_bytes() + program_.buffer_bytes[b].count());
  }
  AddUnitTraffic(program);
}

// Bytes of one collective; the largest, should they differ.
void ReportBuilder::AddUnitTraffic(ProgramId program) {
  for (const pb::SegmentUse& use : plan_.programs(static_cast<int>(program)).uses()) {
    for (const pb::Op& op : plan_.segments(use.segment()).ops()) {
      if (!op.has_unit()) continue;
      pb::UnitReport& out = *report_.mutable_units(op.unit());
      if (op.has_all_gather()) {
        const int64_t size = SizeOf(static_cast<DType>(op.all_gather().dtype()));
        out.set_gather_bytes(std::max(out.gather_bytes(), op.all_gather().elems_out() * size));
      } else if (op.has_reduce_scatter()) {
        const int64_t size = SizeOf(static_cast<DType>(op.reduce_scatter().dtype()));
        out.set_reduce_bytes(std::max(out.reduce_bytes(), op.reduce_scatter().elems_in() * size));
      }
    }
  }
}

}  // namespace foreshard::run
