#include "tools/render/text_report.h"

#include "proto/report.pb.h"
#include "tools/render/figures.h"
#include "tools/render/report_sections.h"

namespace foreshard {

std::string RenderText(const pb::Report& report, int width) {
  const Style style = StyleFor(report.fit().peak_bytes(), width);
  std::string text =
      HeadlineText(report, style) + FitText(report.fit(), style) + StateText(report, style);
  if (report.has_host()) text += HostText(report.host(), style);
  if (report.has_peak()) text += LedgerText(report.peak(), style) + LiveText(report.peak(), style);
  text += PhasesText(report, style);
  if (report.has_timing()) text += TimingText(report, style);
  return text + CollectivesText(report, style) + AssumptionsText(report, style);
}

}  // namespace foreshard
