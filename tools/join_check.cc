// Whether two reports can be joined at all.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/report_join.h"

namespace foreshard {
namespace {

constexpr const char* kDifferent = "the reports are of different plans";

Status Different(const NamedReport& a, const NamedReport& b, const std::string& what,
                 const std::string& of_a, const std::string& of_b) {
  return InvalidArgument(
      fmt::format("{}: {} is {} in {} and {} in {}", kDifferent, what, of_a, a.name, of_b, b.name));
}

// REQUIRES: rows name what the timeline lists (ReadReportOrPlan sees to it).
std::string Describe(const pb::Timeline& timeline, const pb::TimelineOp& op) {
  std::string text = op.kind() + (op.kernel().empty() ? "" : " " + op.kernel());
  if (op.stream() >= 0) text += " on stream " + timeline.streams(op.stream());
  if (!op.module().empty()) text += ", module " + op.module();
  if (!op.unit().empty()) text += ", unit " + op.unit();
  return fmt::format("{} (program {}, op {} of segment {}, repetition {})", text,
                     timeline.programs(op.program()), op.op(), timeline.segments(op.segment()),
                     op.repetition());
}

bool SameOp(const pb::Timeline& a, const pb::TimelineOp& x, const pb::Timeline& b,
            const pb::TimelineOp& y) {
  const bool same_stream = x.stream() < 0 || y.stream() < 0
                               ? x.stream() == y.stream()
                               : a.streams(x.stream()) == b.streams(y.stream());
  return same_stream && a.programs(x.program()) == b.programs(y.program()) &&
         a.segments(x.segment()) == b.segments(y.segment()) && x.repetition() == y.repetition() &&
         x.op() == y.op() && x.kind() == y.kind() && x.kernel() == y.kernel() &&
         x.unit() == y.unit() && x.module() == y.module();
}

Status CheckSetups(const NamedReport& a, const NamedReport& b) {
  const pb::Setup& x = a.report.setup();
  const pb::Setup& y = b.report.setup();
  if (x.model() != y.model()) return Different(a, b, "the model", x.model(), y.model());
  const struct {
    const char* name;
    int64_t a;
    int64_t b;
  } counts[] = {{"the world size", x.world_size(), y.world_size()},
                {"the number of parameters", x.parameters(), y.parameters()},
                {"the number of units", x.units(), y.units()},
                {"the micro-batch", x.micro_batch(), y.micro_batch()},
                {"the sequence length", x.seq(), y.seq()}};
  for (const auto& count : counts) {
    if (count.a == count.b) continue;
    return Different(a, b, count.name, fmt::format("{}", count.a), fmt::format("{}", count.b));
  }
  const int shown_a = a.report.timeline().rank();
  const int shown_b = b.report.timeline().rank();
  if (shown_a == shown_b) return OkStatus();
  return InvalidArgument(fmt::format(
      "the reports show different ranks: {} in {} and {} in {}; sim --rank and run --report-rank "
      "choose",
      shown_a, a.name, shown_b, b.name));
}

// What is joined is there.
Status CheckParts(const NamedReport& one) {
  const char* how =
      "write it with `foreshard sim PLAN --cluster C -o FILE` or `foreshard run PLAN -o FILE`";
  const pb::Report& report = one.report;
  if (report.timeline().ops().empty()) {
    return InvalidInput(fmt::format("{}: the report lists no ops; {}", one.name, how));
  }
  if (report.phases().empty() || !report.has_peak()) {
    return InvalidInput(fmt::format("{}: the report has no memory of phases; {}", one.name, how));
  }
  if (report.setup().rank() != report.timeline().rank()) {
    return InvalidInput(fmt::format("{}: the report is of rank {} and its ops of rank {}", one.name,
                                    report.setup().rank(), report.timeline().rank()));
  }
  return OkStatus();
}

// A run of one step has no steady one.
Status CheckPrograms(const NamedReport& a, const NamedReport& b) {
  std::set<std::string> listed;
  for (const pb::TimelineOp& op : b.report.timeline().ops()) {
    listed.insert(b.report.timeline().programs(op.program()));
  }
  for (const pb::TimelineOp& op : a.report.timeline().ops()) {
    const std::string& program = a.report.timeline().programs(op.program());
    if (listed.contains(program)) continue;
    return InvalidArgument(
        fmt::format("{}: no op of program {}, which {} lists; a run needs --steps {} or more",
                    b.name, program, a.name, a.report.timeline().programs_size()));
  }
  return OkStatus();
}

Status CheckOps(const NamedReport& a, const NamedReport& b) {
  const pb::Timeline& x = a.report.timeline();
  const pb::Timeline& y = b.report.timeline();
  const int common = std::min(x.ops_size(), y.ops_size());
  for (int i = 0; i < common; ++i) {
    if (SameOp(x, x.ops(i), y, y.ops(i))) continue;
    return Different(a, b, fmt::format("op {} of the timeline", i), Describe(x, x.ops(i)),
                     Describe(y, y.ops(i)));
  }
  if (x.ops_size() == y.ops_size()) return OkStatus();
  const auto at = [&](const pb::Timeline& t) {
    return t.ops_size() > common ? Describe(t, t.ops(common)) : std::string("missing");
  };
  return Different(a, b, fmt::format("op {} of the timeline", common), at(x), at(y));
}

}  // namespace

Status CheckJoinable(const NamedReport& a, const NamedReport& b) {
  RETURN_IF_ERROR(CheckParts(a));
  RETURN_IF_ERROR(CheckParts(b));
  RETURN_IF_ERROR(CheckSetups(a, b));
  RETURN_IF_ERROR(CheckPrograms(a, b));
  RETURN_IF_ERROR(CheckPrograms(b, a));
  return CheckOps(a, b);
}

}  // namespace foreshard
