#include "tools/render/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/figures.h"
#include "tools/render/fold.h"
#include "tools/render/names.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"
#include "tools/render/textbook_text.h"
#include "tools/render/units_text.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

// By category, then in the order of numbers in names, so that equal ones stand side by side.
bool InOrder(const pb::LiveGroup& a, const pb::LiveGroup& b) {
  if (a.category() != b.category()) return a.category() < b.category();
  const std::optional<NumberedName> left = ParseNumbered(a.owner());
  const std::optional<NumberedName> right = ParseNumbered(b.owner());
  if (!left || !right || left->prefix != right->prefix || left->suffix != right->suffix) {
    return a.owner() < b.owner();
  }
  return left->first < right->first;
}

struct LiveRow {
  const pb::LiveGroup* group = nullptr;
  Fold fold;
  int64_t bytes() const { return group->bytes() * static_cast<int64_t>(fold.count); }
  int64_t buffers() const { return group->count() * static_cast<int64_t>(fold.count); }
};

std::vector<LiveRow> LiveRows(const pb::Peak& peak) {
  std::vector<const pb::LiveGroup*> groups;
  for (const pb::LiveGroup& group : peak.live()) groups.push_back(&group);
  std::ranges::stable_sort(groups, [](auto* a, auto* b) { return InOrder(*a, *b); });
  std::vector<std::string> names;
  for (const pb::LiveGroup* group : groups) names.push_back(group->owner());
  const auto alike = [&](size_t a, size_t b) {
    return groups[a]->category() == groups[b]->category() &&
           groups[a]->bytes() == groups[b]->bytes() && groups[a]->count() == groups[b]->count();
  };
  std::vector<LiveRow> rows;
  for (const Fold& fold : FoldNames(names, alike)) rows.push_back({groups[fold.begin], fold});
  std::ranges::stable_sort(rows, std::greater(), &LiveRow::bytes);
  return rows;
}

std::string Live(const pb::Peak& peak, const Style& style) {
  if (peak.live().empty()) return "";
  const Style mebi = {.width = style.width, .gibi = false};
  TextTable table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  table.AddRow({"MiB", "%", "buffers", "alive then", "of"});
  for (const LiveRow& row : LiveRows(peak)) {
    table.AddRow({mebi.Number(row.bytes()),
                  Percent(static_cast<double>(row.bytes()), static_cast<double>(peak.bytes())),
                  FormatCount(row.buffers()), CategoryName(row.group->category()), row.fold.label});
  }
  return table.Render(2, style.width);
}

// The first phase in which the peak was reached, between what its program went through.
std::string Course(const pb::Report& report, const Style& style) {
  TextTable table(
      {Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({"program", "phase", "start", "peak", "end", ""});
  const pb::OpRef& at = report.peak().at();
  for (const pb::PhaseMemory& phase : report.phases()) {
    const bool here = phase.program() == at.program() && phase.phase() == at.phase() &&
                      phase.peak_bytes() == report.peak().bytes();
    table.AddRow({phase.program(), PhaseName(phase.phase(), phase.micro_batch()),
                  style.Number(phase.start_bytes()), style.Number(phase.peak_bytes()),
                  style.Number(phase.end_bytes()), here ? "<- the peak" : ""});
  }
  return report.phases().empty()
             ? ""
             : "\nWhere in the steps, " + style.unit() + "\n" + table.Render(2, style.width);
}

std::string StepLine(const pb::Timing& t, const Style& style) {
  return "\n" +
         Wrapped(fmt::format("Step time {} ({}), exposed communication {} ({} % of the step)",
                             TimeText(t.step_ps()),
                             t.calibrated() ? "calibrated" : "first order, not calibrated",
                             TimeText(t.exposed_communication_ps()),
                             Percent(static_cast<double>(t.exposed_communication_ps()),
                                     static_cast<double>(t.step_ps()))),
                 "", style.width);
}

}  // namespace

std::string RenderExplanation(const pb::Report& report, int width) {
  const Style style = StyleFor(report.fit().peak_bytes(), width);
  std::string text = HeadlineText(report, style) + FitText(report.fit(), style);
  if (report.has_peak()) {
    text += LedgerText(report.peak(), style);
    text += "\n" + Wrapped(PlaceText(report.peak().at()), "Peak at ", width);
    text += Live(report.peak(), style) + Course(report, style);
  }
  if (report.has_timing()) text += StepLine(report.timing(), style);
  text += UnitsText(report, style) + CollectivesText(report, style);
  if (report.has_textbook()) text += TextbookText(report.textbook(), style);
  return text + AssumptionsText(report, style);
}

}  // namespace foreshard
