#include "tools/render/table_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/figures.h"
#include "tools/render/ledger.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;
using Reports = google::protobuf::RepeatedPtrField<pb::Report>;

struct ChoiceColumn {
  const char* title;
  Align align;
  std::string (*value)(const pb::Setup&);
};

constexpr ChoiceColumn kWrap = {"wrap", Align::kLeft, [](const pb::Setup& s) {
                                  return s.wrap_policy().empty() ? "-" : s.wrap_policy();
                                }};
constexpr ChoiceColumn kWorld = {"GPUs", Align::kRight,
                                 [](const pb::Setup& s) { return fmt::to_string(s.world_size()); }};
constexpr ChoiceColumn kCluster = {"cluster", Align::kLeft,
                                   [](const pb::Setup& s) { return s.cluster(); }};
constexpr ChoiceColumn kSeq = {"seq", Align::kRight,
                               [](const pb::Setup& s) { return fmt::to_string(s.seq()); }};
constexpr ChoiceColumn kMicroBatch = {"micro-batch", Align::kRight, [](const pb::Setup& s) {
                                        return fmt::to_string(s.micro_batch());
                                      }};
constexpr ChoiceColumn kReshard = {
    "reshard", Align::kLeft, [](const pb::Setup& s) {
      return s.reshard_after_forward().empty() ? "-" : s.reshard_after_forward();
    }};

bool Varies(const ChoiceColumn& column, const Reports& reports) {
  const std::string first = column.value(reports[0].setup());
  return std::ranges::any_of(reports,
                             [&](const pb::Report& r) { return column.value(r.setup()) != first; });
}

std::vector<ChoiceColumn> ChoiceColumns(const Reports& reports) {
  std::vector<ChoiceColumn> columns = {kWrap};
  for (const ChoiceColumn& c : {kWorld, kCluster, kSeq, kMicroBatch, kReshard}) {
    if (Varies(c, reports)) columns.push_back(c);
  }
  return columns;
}

// What all rows have in common of their choices.
std::string Common(const Reports& reports, const Style& style) {
  const pb::Setup& s = reports[0].setup();
  const bool one_world = !Varies(kWorld, reports);
  const bool one_cluster = !Varies(kCluster, reports);
  std::string text = s.model() + " on ";
  if (one_world) text += fmt::format("{} {}", s.world_size(), one_cluster ? "x " : "GPUs");
  if (one_cluster) {
    text += fmt::format("{} ({}{})", s.gpu(), s.cluster(), one_world ? ", " + NodesText(s) : "");
  }
  if (!one_world && !one_cluster) text += "several clusters";
  if (!Varies(kSeq, reports)) text += fmt::format(", {} tokens a sequence", s.seq());
  if (!Varies(kMicroBatch, reports)) text += fmt::format(", micro-batch {}", s.micro_batch());
  if (!Varies(kReshard, reports) && !s.reshard_after_forward().empty()) {
    text += ", reshard after forward " + s.reshard_after_forward();
  }
  const auto fitting = std::ranges::count_if(reports, [](const auto& r) { return r.fit().fits(); });
  return Wrapped(text + fmt::format("; {} parameters, predicted", FormatCount(s.parameters())), "",
                 style.width) +
         fmt::format("{} of {} choices fit\n", fitting, reports.size());
}

std::vector<std::string> Titles(const Style& style) {
  return {
      "units",    "peak " + style.unit(), "headroom", "gathered", "step ms", "tokens/s", "MFU %",
      "exposed %"};
}

std::string Milliseconds(int64_t ps) {
  return fmt::format("{:.3f}", static_cast<double>(ps) * 1e-9);
}

void AddRow(const pb::Report& report, const std::vector<ChoiceColumn>& choices, const Style& style,
            TextTable& table) {
  const pb::Fit& fit = report.fit();
  const pb::Timing& t = report.timing();
  std::vector<std::string> cells;
  for (const ChoiceColumn& choice : choices) cells.push_back(choice.value(report.setup()));
  cells.push_back(fmt::to_string(report.setup().units()));
  cells.push_back(style.Number(fit.peak_bytes()));
  if (!fit.fits()) {
    cells.push_back(fmt::format("does not fit, short by {} GiB", Gib(-fit.headroom_bytes())));
    table.AddSpanningRow(std::move(cells));
    return;
  }
  cells.push_back(style.Number(fit.headroom_bytes()));
  cells.push_back(style.Number(GatheredAtPeak(report.peak())));
  cells.push_back(Milliseconds(t.step_ps()));
  cells.push_back(fmt::format("{:.0f}", t.tokens_per_second_per_gpu()));
  cells.push_back(fmt::format("{:.1f}", 100 * t.mfu()));
  cells.push_back(
      Percent(static_cast<double>(t.exposed_communication_ps()), static_cast<double>(t.step_ps())));
  table.AddRow(std::move(cells));
}

std::string Rows(const Reports& reports, const Style& style) {
  const std::vector<ChoiceColumn> choices = ChoiceColumns(reports);
  std::vector<Align> aligns;
  std::vector<std::string> titles;
  for (const ChoiceColumn& choice : choices) {
    aligns.push_back(choice.align);
    titles.emplace_back(choice.title);
  }
  for (const std::string& title : Titles(style)) {
    aligns.push_back(Align::kRight);
    titles.push_back(title);
  }
  TextTable table(aligns);
  table.AddRow(titles);
  for (const pb::Report& report : reports) AddRow(report, choices, style, table);
  return "\n" + table.Render(0, style.width);
}

std::string Legend(const Reports& reports, const Style& style) {
  const bool calibrated =
      std::ranges::all_of(reports, [](const auto& r) { return r.timing().calibrated(); });
  return Wrapped(
      fmt::format("peak: of the GPU that holds most; gathered: parameters gathered at "
                  "the peak, {}; tokens/s: of one GPU; exposed: communication that "
                  "nothing hides, of the step; times: {}",
                  style.unit(), calibrated ? "calibrated" : "first order, not calibrated"),
      "", style.width);
}

bool HasAssumption(const pb::Report& report, const std::string& sentence) {
  return std::ranges::find(report.assumptions(), sentence) != report.assumptions().end();
}

// Those of all rows.
std::string CommonAssumptions(const Reports& reports, const Style& style) {
  pb::Report common;
  bool same = true;
  for (const pb::Report& report : reports) {
    same &= report.assumptions_size() == reports[0].assumptions_size();
  }
  for (const std::string& sentence : reports[0].assumptions()) {
    const bool all = std::ranges::all_of(
        reports, [&](const pb::Report& r) { return HasAssumption(r, sentence); });
    if (all) common.add_assumptions(sentence);
    same &= all;
  }
  if (!same) common.add_assumptions("others differ from row to row: predict one choice, or --json");
  return AssumptionsText(common, style);
}

}  // namespace

std::string RenderTable(const pb::ReportTable& table, int width) {
  int64_t highest = 0;
  for (const pb::Report& report : table.reports()) {
    highest = std::max(highest, report.fit().peak_bytes());
  }
  const Style style = StyleFor(highest, width);
  return Common(table.reports(), style) + Rows(table.reports(), style) +
         Legend(table.reports(), style) + CommonAssumptions(table.reports(), style);
}

}  // namespace foreshard
