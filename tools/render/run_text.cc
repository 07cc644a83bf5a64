#include "tools/render/run_text.h"

#include <fmt/format.h>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

std::string EnvironmentText(const pb::Environment& e, const Style& style) {
  std::string libraries;
  for (const std::string& one : e.libraries()) libraries += ", " + one;
  return Wrapped(fmt::format("{} backend, {} cores, {} of memory, {}", e.backend(), e.cores(),
                             FormatBytes(Bytes(e.memory_bytes())), e.operating_system()),
                 "", style.width) +
         Wrapped(fmt::format("{} build, {}{}; memory {}poisoned", e.build(), e.compiler(),
                             libraries, e.poisoned() ? "" : "not "),
                 "", style.width) +
         Wrapped(fmt::format("weights from {}, data {}, seed {}", e.weights(), e.data(), e.seed()),
                 "", style.width);
}

// The first and the last steps; all of them are in the JSON and were printed as they ended.
std::string TrainingText(const pb::Report& report) {
  constexpr int kShown = 5;
  const int steps = report.training_size();
  std::string text = "\nTraining\n";
  for (int i = 0; i < steps; ++i) {
    if (i >= kShown && i < steps - kShown) {
      if (i == kShown) text += fmt::format("  ... {} steps\n", steps - 2 * kShown);
      continue;
    }
    const pb::StepTraining& step = report.training(i);
    const double norm = step.gradient_norm();
    text += "  " +
            StepText(i, {step.losses().data(), static_cast<size_t>(step.losses_size())},
                     step.has_gradient_norm() ? &norm : nullptr) +
            "\n";
  }
  return text;
}

std::string RanksText(const pb::Report& report, const Style& style) {
  if (report.ranks_size() < 2) return "";
  TextTable table({Align::kLeft, Align::kRight, Align::kRight});
  table.AddRow({"rank", "ranks alike", "peak " + style.unit()});
  for (const pb::RankMemory& rank : report.ranks()) {
    table.AddRow({fmt::format("{}", rank.rank()), FormatCount(rank.ranks()),
                  style.Number(rank.peak_bytes())});
  }
  return "\nRanks that hold unlike amounts\n" + table.Render(2, style.width);
}

}  // namespace

std::string StepText(int64_t step, std::span<const double> losses, const double* norm) {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  std::string text = fmt::format("step {}", step);
  if (!losses.empty()) {
    text += fmt::format("  loss {:.6f}", sum / static_cast<double>(losses.size()));
  }
  if (norm != nullptr) text += fmt::format("  gradient norm {:.6g}", *norm);
  return text;
}

std::string RenderRun(const pb::Report& report, int width) {
  const Style style = StyleFor(report.peak().bytes(), width);
  std::string text = HeadlineText(report, style) + EnvironmentText(report.environment(), style);
  if (report.has_host()) text += HostText(report.host(), style);
  text += TrainingText(report) + LedgerText(report.peak(), style);
  text += LiveText(report.peak(), style) + RanksText(report, style) + PhasesText(report, style);
  return text + TimingText(report, style) + CollectivesText(report, style);
}

}  // namespace foreshard
