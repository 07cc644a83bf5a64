#include "tools/render/text_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/figures.h"
#include "tools/render/names.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

std::string Live(const pb::Peak& peak, const Style& style) {
  constexpr int kShown = 6;
  std::string text = "\n" + Wrapped(PlaceText(peak.at()), "Peak at ", style.width);
  if (peak.live().empty()) return text;
  TextTable table({Align::kRight, Align::kRight, Align::kLeft, Align::kLeft});
  table.AddRow({style.unit(), "buffers", "largest groups alive then", "of"});
  for (int i = 0; i < std::min(kShown, peak.live_size()); ++i) {
    const pb::LiveGroup& group = peak.live(i);
    table.AddRow({style.Number(group.bytes()), FormatCount(group.count()),
                  CategoryName(group.category()), group.owner()});
  }
  return text + table.Render(2, style.width);
}

// The steady program only: the first step differs by the optimizer's state (in the JSON).
std::string Phases(const pb::Report& report, const Style& style) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"phase", "start", "end", "peak", "of it managed by sharding"});
  bool any = false;
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() != "steady") continue;
    any = true;
    table.AddRow({PhaseName(phase.phase()), style.Number(phase.start_bytes()),
                  style.Number(phase.end_bytes()), style.Number(phase.peak_bytes()),
                  style.Number(phase.managed_peak_bytes())});
  }
  if (!any) return "";
  return "\nMemory of a steady step, " + style.unit() + "\n" + table.Render(2, style.width);
}

std::string Timing(const pb::Timing& t, const Style& style) {
  const char* trust = t.calibrated() ? "calibrated" : "first order, not calibrated";
  std::string text = fmt::format("\nStep time {} ({})\n", TimeText(t.step_ps()), trust);
  std::string phases;
  for (const pb::PhaseTime& phase : t.phases()) {
    phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", PhaseName(phase.phase()),
                          TimeText(phase.duration_ps()));
  }
  if (!phases.empty()) text += Wrapped(phases, "  ", style.width);
  text +=
      Wrapped(fmt::format("compute busy {}, communication busy {}, exposed communication {} ({} % "
                          "of the step), host busy {}",
                          TimeText(t.compute_busy_ps()), TimeText(t.communication_busy_ps()),
                          TimeText(t.exposed_communication_ps()),
                          Percent(static_cast<double>(t.exposed_communication_ps()),
                                  static_cast<double>(t.step_ps())),
                          TimeText(t.host_busy_ps())),
              "  ", style.width);
  text += Wrapped(
      fmt::format("{:.0f} tokens/s per GPU, MFU {:.1f} % of {:.0f} TFLOP/s",
                  t.tokens_per_second_per_gpu(), 100 * t.mfu(), t.peak_flops_per_second() * 1e-12),
      "  ", style.width);
  return text;
}

}  // namespace

std::string RenderText(const pb::Report& report, int width) {
  const Style style = StyleFor(report.fit().peak_bytes(), width);
  std::string text = HeadlineText(report, style) + FitText(report.fit(), style);
  if (report.has_peak()) text += LedgerText(report.peak(), style) + Live(report.peak(), style);
  text += Phases(report, style);
  if (report.has_timing()) text += Timing(report.timing(), style);
  return text + CollectivesText(report, style) + AssumptionsText(report, style);
}

}  // namespace foreshard
