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
#include "tools/render/wire.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;
using Reports = google::protobuf::RepeatedPtrField<pb::Report>;

struct ChoiceColumn {
  const char* title;
  Align align;
  std::string (*value)(const pb::Setup&);
};

constexpr ChoiceColumn kStrategy = {"strategy", Align::kLeft,
                                    [](const pb::Setup& s) { return s.strategy(); }};
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
constexpr ChoiceColumn kReplicas = {"replicas", Align::kRight, [](const pb::Setup& s) {
                                      return fmt::to_string(s.replicate_size());
                                    }};
constexpr ChoiceColumn kMicroBatches = {"micro-batches", Align::kRight, [](const pb::Setup& s) {
                                          return fmt::to_string(s.micro_batches());
                                        }};
constexpr ChoiceColumn kRecomputed = {"recomputed", Align::kRight, [](const pb::Setup& s) {
                                        return fmt::to_string(s.recomputed_modules());
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

bool ComparesStrategies(const Reports& reports) { return Varies(kStrategy, reports); }

std::vector<ChoiceColumn> ChoiceColumns(const Reports& reports) {
  std::vector<ChoiceColumn> columns;
  if (ComparesStrategies(reports)) columns.push_back(kStrategy);
  if (!ComparesStrategies(reports) || Varies(kWrap, reports)) columns.push_back(kWrap);
  for (const ChoiceColumn& c :
       {kWorld, kCluster, kSeq, kMicroBatch, kReshard, kReplicas, kMicroBatches, kRecomputed}) {
    if (Varies(c, reports)) columns.push_back(c);
  }
  return columns;
}

// What all rows have in common of their choices.
std::string Common(const Reports& reports, const Style& style) {
  const pb::Setup& s = reports[0].setup();
  const bool one_wrap = !Varies(kWrap, reports);
  const bool one_world = !Varies(kWorld, reports);
  const bool one_cluster = !Varies(kCluster, reports);
  std::string text = s.model() + " on ";
  if (one_world) text += fmt::format("{} {}", s.world_size(), one_cluster ? "x " : "GPUs");
  if (one_cluster) {
    text += fmt::format("{} ({}{})", s.gpu(), s.cluster(), one_world ? ", " + NodesText(s) : "");
  }
  if (!one_world && !one_cluster) text += "several clusters";
  if (ComparesStrategies(reports) && one_wrap) text += ", wrap " + s.wrap_policy();
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

std::string Milliseconds(int64_t ps) {
  return fmt::format("{:.3f}", static_cast<double>(ps) * 1e-9);
}

struct FigureColumn {
  std::string title;
  std::string (*value)(const pb::Report&, const Style&);
};

// Of every row: what the choice holds and, where strategies are compared, what it sends.
std::vector<FigureColumn> FiguresOfAll(const Reports& reports, const Style& style) {
  const FigureColumn peak = {"peak " + style.unit(), [](const pb::Report& r, const Style& in) {
                               return in.Number(r.fit().peak_bytes());
                             }};
  if (!ComparesStrategies(reports)) {
    return {{"units",
             [](const pb::Report& r, const Style&) { return fmt::to_string(r.setup().units()); }},
            peak};
  }
  return {
      {"payload", [](const pb::Report& r, const Style& in) { return in.Number(PayloadBytes(r)); }},
      {"sent", [](const pb::Report& r, const Style& in) { return in.Number(SentBytes(r)); }},
      {"persistent",
       [](const pb::Report& r, const Style& in) { return in.Number(r.fit().persistent_bytes()); }},
      {"transient",
       [](const pb::Report& r, const Style& in) {
         return in.Number(r.fit().peak_bytes() - r.fit().persistent_bytes());
       }},
      peak};
}

// Of rows that fit; where strategies are compared, no more than a line has room for.
std::vector<FigureColumn> FiguresOfFitting(const Reports& reports) {
  const FigureColumn headroom = {"headroom", [](const pb::Report& r, const Style& in) {
                                   return in.Number(r.fit().headroom_bytes());
                                 }};
  const FigureColumn step = {"step ms", [](const pb::Report& r, const Style&) {
                               return Milliseconds(r.timing().step_ps());
                             }};
  if (ComparesStrategies(reports)) return {headroom, step};
  return {headroom,
          {"gathered", [](const pb::Report& r,
                          const Style& in) { return in.Number(GatheredAtPeak(r.peak())); }},
          step,
          {"tokens/s",
           [](const pb::Report& r, const Style&) {
             return fmt::format("{:.0f}", r.timing().tokens_per_second_per_gpu());
           }},
          {"MFU %", [](const pb::Report& r,
                       const Style&) { return fmt::format("{:.1f}", 100 * r.timing().mfu()); }},
          {"exposed %", [](const pb::Report& r, const Style&) {
             const pb::Timing& t = r.timing();
             return Percent(static_cast<double>(t.exposed_communication_ps()),
                            static_cast<double>(t.step_ps()));
           }}};
}

void AddRow(const pb::Report& report, const std::vector<ChoiceColumn>& choices,
            const std::vector<FigureColumn>& all, const std::vector<FigureColumn>& fitting,
            const Style& style, TextTable& table) {
  std::vector<std::string> cells;
  for (const ChoiceColumn& choice : choices) cells.push_back(choice.value(report.setup()));
  for (const FigureColumn& figure : all) cells.push_back(figure.value(report, style));
  if (!report.fit().fits()) {
    const char* const verdict = fitting.size() > 2 ? "does not fit, short by" : "short by";
    cells.push_back(fmt::format("{} {} GiB", verdict, Gib(-report.fit().headroom_bytes())));
    table.AddSpanningRow(std::move(cells));
    return;
  }
  for (const FigureColumn& figure : fitting) cells.push_back(figure.value(report, style));
  table.AddRow(std::move(cells));
}

std::string Rows(const Reports& reports, const Style& style) {
  const std::vector<ChoiceColumn> choices = ChoiceColumns(reports);
  const std::vector<FigureColumn> all = FiguresOfAll(reports, style);
  const std::vector<FigureColumn> fitting = FiguresOfFitting(reports);
  std::vector<Align> aligns;
  std::vector<std::string> titles;
  for (const ChoiceColumn& choice : choices) {
    aligns.push_back(choice.align);
    titles.emplace_back(choice.title);
  }
  for (const auto* figures : {&all, &fitting}) {
    for (const FigureColumn& figure : *figures) {
      aligns.push_back(Align::kRight);
      titles.push_back(figure.title);
    }
  }
  TextTable table(aligns);
  table.AddRow(titles);
  for (const pb::Report& report : reports) AddRow(report, choices, all, fitting, style, table);
  return "\n" + table.Render(0, style.width);
}

std::string Legend(const Reports& reports, const Style& style) {
  const bool calibrated =
      std::ranges::all_of(reports, [](const auto& r) { return r.timing().calibrated(); });
  const char* const times = calibrated ? "calibrated" : "first order, not calibrated";
  if (ComparesStrategies(reports)) {
    return Wrapped(
        fmt::format("replicas: who holds the same, of hybrids one per node unless --replicate "
                    "says otherwise; payload: buffers of a step's collectives, all-reduces twice; "
                    "sent: by one "
                    "GPU in rings, {}; persistent: alive between steps; transient: the rest of the "
                    "peak; peak: of the GPU that holds most; times: {}",
                    style.unit(), times),
        "", style.width);
  }
  return Wrapped(fmt::format("peak: of the GPU that holds most; gathered: parameters gathered at "
                             "the peak, {}; tokens/s: of one GPU; exposed: communication that "
                             "nothing hides, of the step; times: {}",
                             style.unit(), times),
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
