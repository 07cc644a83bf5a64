#include "tools/report_join.h"

#include <algorithm>
#include <set>

namespace foreshard {
namespace {

// Programs whose ops the timeline lists, in order.
std::vector<std::string> ProgramsOf(const pb::Timeline& timeline) {
  std::set<int> listed;
  for (const pb::TimelineOp& op : timeline.ops()) listed.insert(op.program());
  std::vector<std::string> names;
  for (const int program : listed) names.push_back(timeline.programs(program));
  return names;
}

Verdict PeakVerdict(const std::vector<MomentPair>& moments, const ByteTolerance& tolerance) {
  Verdict verdict{"peak", tolerance.text};
  verdict.compared = static_cast<int64_t>(moments.size());
  verdict.beyond = std::ranges::count(moments, false, &MomentPair::within);
  return verdict;
}

Verdict PlaceVerdict(const std::vector<MomentPair>& moments, bool judged) {
  Verdict verdict{"places", judged ? "yes" : "no", judged};
  for (const MomentPair& moment : moments) {
    if (!moment.at_a && !moment.at_b) continue;
    ++verdict.compared;
    if (!moment.same_place) ++verdict.beyond;
  }
  return verdict;
}

Verdict MemoryVerdict(const MemoryJoin& memory, const ByteTolerance& tolerance) {
  Verdict verdict{"memory", tolerance.text};
  verdict.compared = memory.ops;
  verdict.beyond = memory.beyond;
  return verdict;
}

Verdict TimeVerdict(const TimeJoin& time, const std::optional<TimeTolerance>& tolerance) {
  Verdict verdict{"time", tolerance ? tolerance->text : "", tolerance.has_value()};
  std::vector<TimePair> rows = time.kinds;
  rows.push_back(time.step);
  for (const TimePair& row : rows) {
    verdict.compared += row.judged ? 1 : 0;
    verdict.beyond += row.within ? 0 : 1;
  }
  return verdict;
}

}  // namespace

pb::OpRef Refer(const pb::Timeline& timeline, const pb::TimelineOp& row) {
  pb::OpRef ref;
  ref.set_program(timeline.programs(row.program()));
  ref.set_segment(timeline.segments(row.segment()));
  ref.set_repetition(row.repetition());
  ref.set_op(row.op());
  ref.set_kind(row.kind());
  ref.set_kernel(row.kernel());
  ref.set_unit(row.unit());
  ref.set_module(row.module());
  ref.set_phase(row.phase());
  return ref;
}

StatusOr<ReportJoin> JoinReports(const NamedReport& a, const NamedReport& b,
                                 const Tolerances& tolerances) {
  RETURN_IF_ERROR(CheckJoinable(a, b));
  ReportJoin join;
  join.programs = ProgramsOf(a.report.timeline());
  join.moments = JoinMoments(a.report, b.report, tolerances.peak);
  join.memory = JoinMemory(a.report.timeline(), b.report.timeline(), tolerances.memory);
  join.time = JoinTime(a.report, b.report, tolerances.time);
  join.verdicts = {
      PeakVerdict(join.moments, tolerances.peak), PlaceVerdict(join.moments, tolerances.places),
      MemoryVerdict(join.memory, tolerances.memory), TimeVerdict(join.time, tolerances.time)};
  for (Verdict& verdict : join.verdicts) {
    verdict.within = !verdict.judged || verdict.beyond == 0;
    join.within &= verdict.within;
  }
  return join;
}

}  // namespace foreshard
