// The collectives of the report: what each kind of them moves in every group.
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "proto/base/dtype.h"
#include "proto/run/program.h"
#include "proto/run/report_builder.h"

namespace foreshard::run {
namespace {

// What a collective moves, in bytes of one rank.
struct Moved {
  int group = 0;
  int64_t input = 0;
  int64_t output = 0;
  int64_t full = 0;  // the buffer that all ranks have, or have together
  int rounds = 1;    // ways that it goes around a ring: an all-reduce reduces, then gathers
};

template <typename Collective>
int64_t SizeOfElement(const Collective& op) {
  return SizeOf(static_cast<DType>(op.dtype()));
}

std::optional<Moved> MovedBy(const pb::Op& op) {
  if (op.has_all_gather()) {
    const pb::AllGather& gather = op.all_gather();
    const int64_t size = SizeOfElement(gather);
    const int64_t out = gather.elems_out() * size;
    return Moved{gather.group(), gather.elems_in() * size, out, out};
  }
  if (op.has_reduce_scatter()) {
    const pb::ReduceScatter& reduce = op.reduce_scatter();
    const int64_t size = SizeOfElement(reduce);
    const int64_t in = reduce.elems_in() * size;
    return Moved{reduce.group(), in, reduce.elems_out() * size, in};
  }
  if (op.has_all_reduce()) {
    const pb::AllReduce& reduce = op.all_reduce();
    const int64_t bytes = reduce.elems() * SizeOfElement(reduce);
    return Moved{reduce.group(), bytes, bytes, bytes, 2};
  }
  if (op.has_broadcast()) {
    const pb::Broadcast& broadcast = op.broadcast();
    const int64_t bytes = broadcast.elems() * SizeOfElement(broadcast);
    return Moved{broadcast.group(), bytes, bytes, bytes};
  }
  return std::nullopt;
}

// A ring passes on every slice of the buffer but one, (n-1)/n of it; of a broadcast that is the
// mean over its ranks, of which the last sends nothing.
int64_t RingBytes(const Moved& moved, int64_t ranks) {
  const int64_t others = ranks - 1;
  const int64_t once = moved.full / ranks * others + moved.full % ranks * others / ranks;
  return moved.rounds * once;
}

void Add(const Moved& moved, int64_t times, pb::CollectiveTotal& total) {
  total.set_count(total.count() + times);
  total.set_input_bytes(total.input_bytes() + times * moved.input);
  total.set_output_bytes(total.output_bytes() + times * moved.output);
  total.set_payload_bytes(total.payload_bytes() + times * moved.rounds * moved.full);
  total.set_wire_bytes(total.wire_bytes() + times * RingBytes(moved, total.ranks()));
}

}  // namespace

void ReportBuilder::AddCollectives(ProgramId program) {
  std::map<std::tuple<std::string, int, int>, pb::CollectiveTotal> totals;
  for (const pb::SegmentUse& use : plan_.programs(static_cast<int>(program)).uses()) {
    for (const pb::Op& op : plan_.segments(use.segment()).ops()) {
      const std::optional<Moved> moved = MovedBy(op);
      if (!moved) continue;
      pb::CollectiveTotal& total = totals[{KindName(op), op.phase(), moved->group}];
      total.set_kind(KindName(op));
      total.set_phase(op.phase());
      total.set_group(plan_.groups(moved->group).name());
      total.set_ranks(plan_.groups(moved->group).size());
      Add(*moved, use.repeat(), total);
    }
  }
  for (const auto& [key, total] : totals) *report_.add_collectives() = total;
}

}  // namespace foreshard::run
