#include "tools/render/join_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/base/units_text.h"
#include "tools/render/figures.h"
#include "tools/render/names.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;

struct Labels {
  std::string a = "A";
  std::string b = "B";
};

const char* SourceOf(const pb::Report& report) {
  return report.source() == pb::Report::MEASURED ? "measured" : "predicted";
}

Labels LabelsOf(const pb::Report& a, const pb::Report& b) {
  if (a.source() == b.source()) return {};
  return {SourceOf(a), SourceOf(b)};
}

std::string Signed(int64_t change) {
  return change == 0 ? "0" : (change > 0 ? "+" : "") + FormatCount(change);
}

std::string Counted(int64_t count, const char* one) {
  return fmt::format("{} {}{}", FormatCount(count), one, count == 1 ? "" : "s");
}

// ---- what the two are

std::string HardwareText(const pb::Report& report) {
  const pb::Setup& setup = report.setup();
  if (report.source() != pb::Report::MEASURED) {
    return fmt::format("simulated on {} x {} ({})", setup.world_size(), setup.gpu(),
                       setup.cluster());
  }
  const pb::Environment& host = report.environment();
  return fmt::format("{} of {} on the {} backend: {}, {}, {} build", Counted(host.steps(), "step"),
                     Counted(setup.world_size(), "rank"), host.backend(), host.device(),
                     Counted(host.cores(), "core"), host.build());
}

std::string HeadText(const NamedReport& a, const NamedReport& b, const ReportJoin& join,
                     const Labels& labels, int width) {
  const auto line = [&](const std::string& label, const NamedReport& one) {
    return Wrapped(fmt::format("{}{}, foreshard {} ({})",
                               label.size() == 1 ? std::string(SourceOf(one.report)) + ", " : "",
                               HardwareText(one.report), one.report.tool_version(), one.name),
                   fmt::format("{:<11}", label + ":"), width);
  };
  const pb::Setup& setup = a.report.setup();
  std::string programs;
  for (const std::string& name : join.programs) programs += (programs.empty() ? "" : ", ") + name;
  return Wrapped(fmt::format("{} on {}, {}, micro-batch {} x {} tokens; rank {}: {} joined ({})",
                             setup.model(), Counted(setup.world_size(), "rank"),
                             Counted(setup.units(), "unit"), setup.micro_batch(), setup.seq(),
                             a.report.timeline().rank(), Counted(join.memory.ops, "op"), programs),
                 "", width) +
         line(labels.a, a) + line(labels.b, b);
}

// ---- memory

void AddCategories(const std::vector<CategoryPair>& pairs, TextTable& table) {
  for (const CategoryPair& pair : pairs) {
    if (pair.a == pair.b) continue;
    table.AddRow({"  " + CategoryName(pair.category), FormatCount(pair.a), FormatCount(pair.b),
                  Signed(pair.b - pair.a), ""});
  }
}

bool Differs(const MomentPair& moment) {
  return !moment.in_a || !moment.in_b || !moment.same_place || moment.a != moment.b ||
         std::ranges::any_of(moment.categories,
                             [](const CategoryPair& pair) { return pair.a != pair.b; });
}

std::string PlaceWord(const MomentPair& moment) {
  if (!moment.in_a || !moment.in_b) return "missing";
  if (moment.moment == "end") return "";
  return moment.same_place ? "same op" : "other op";
}

// Peaks, and of the other moments those that differ.
std::string MomentsText(const ReportJoin& join, const Labels& labels, int width) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({"peak of", labels.a, labels.b, "change", "place"});
  std::string places;
  for (const MomentPair& moment : join.moments) {
    if (moment.moment != "peak" && !Differs(moment)) continue;
    const bool both = moment.in_a && moment.in_b;
    table.AddRow({moment.moment == "peak" ? moment.where : moment.where + ", " + moment.moment,
                  moment.in_a ? FormatCount(moment.a) : "-",
                  moment.in_b ? FormatCount(moment.b) : "-",
                  both ? Signed(moment.b - moment.a) : "", PlaceWord(moment)});
    if (both) AddCategories(moment.categories, table);
    if (!both || moment.same_place || !places.empty()) continue;
    const auto place = [](const std::optional<pb::OpRef>& at) {
      return at ? PlaceText(*at) : std::string("its start");
    };
    places = Wrapped(fmt::format("{} of {} at {}", moment.moment, moment.where, place(moment.at_a)),
                     "  " + labels.a + ": ", width) +
             Wrapped(place(moment.at_b), "  " + labels.b + ": ", width);
  }
  const auto equal = std::ranges::count_if(join.moments, [](const auto& m) { return !Differs(m); });
  return "\nPeaks, bytes\n" + table.Render(2, width) + places +
         fmt::format(
             "  {} of {} (peaks, peaks of what sharding manages, ends) agree in every "
             "category\n",
             FormatCount(equal), Counted(static_cast<int64_t>(join.moments.size()), "moment"));
}

std::string PartingText(const Parting& first, const Labels& labels, int width) {
  const std::string where = first.index < 0 ? "before the first op" : PlaceText(first.op);
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({first.index < 0 ? "alive" : "alive once it has " + first.moment, labels.a, labels.b,
                "change", ""});
  AddCategories(first.running, table);
  std::string text = Wrapped(where, "  they part at ", width) + table.Render(2, width);
  if (first.index < 0 || first.changes.empty()) return text;
  TextTable own({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  own.AddRow({first.moment + " by this op", labels.a, labels.b, "change", ""});
  for (const CategoryPair& pair : first.changes) {
    own.AddRow({"  " + CategoryName(pair.category), FormatCount(pair.a), FormatCount(pair.b),
                Signed(pair.b - pair.a), ""});
  }
  return text + own.Render(2, width);
}

std::string MemoryText(const MemoryJoin& memory, const Labels& labels, int width) {
  std::string text =
      fmt::format("  {} of {} agree in every category: when it has allocated, settled and freed\n",
                  FormatCount(memory.equal), Counted(memory.ops, "op"));
  if (memory.first) {
    if (memory.unequal_changes > 0) {
      text += fmt::format("  {} allocate, settle or free other amounts\n",
                          Counted(memory.unequal_changes, "op"));
    }
    text += PartingText(*memory.first, labels, width);
  }
  return "\nMemory op by op\n" + text;
}

// ---- time

std::string RatioText(int64_t a, int64_t b) {
  if (a <= 0) return "-";
  const double ratio = static_cast<double>(b) / static_cast<double>(a);
  return ratio < 1000 ? fmt::format("{:.3g}", ratio) : fmt::format("{:.0f}", ratio);
}

std::vector<std::string> TimeCells(const TimePair& row, const std::string& name) {
  return {name,
          FormatCount(row.ops),
          TimeText(row.a_ps),
          TimeText(row.b_ps),
          RatioText(row.a_ps, row.b_ps),
          row.within ? "" : "<- beyond"};
}

// The longest kinds and those beyond, and the others in one row.
void AddKinds(const std::vector<TimePair>& kinds, TextTable& table) {
  constexpr size_t kShown = 12;
  std::vector<TimePair> hidden;
  for (const TimePair& row : kinds) {
    const auto longer = std::ranges::count_if(kinds, [&](const TimePair& other) {
      return std::max(other.a_ps, other.b_ps) > std::max(row.a_ps, row.b_ps);
    });
    if (longer < static_cast<int64_t>(kShown) || !row.within) {
      table.AddRow(TimeCells(row, row.name));
    } else {
      hidden.push_back(row);
    }
  }
  if (hidden.empty()) return;
  TimePair rest;
  for (const TimePair& row : hidden) {
    rest.ops += row.ops;
    rest.a_ps += row.a_ps;
    rest.b_ps += row.b_ps;
  }
  table.AddRow(TimeCells(rest, Counted(static_cast<int64_t>(hidden.size()), "other kind")));
}

std::string TimesText(const ReportJoin& join, const Labels& labels, int width) {
  const TimeJoin& time = join.time;
  TextTable table(
      {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.AddRow({"", "ops", labels.a, labels.b, "ratio", ""});
  table.AddRow({"step", "", TimeText(time.step.a_ps), TimeText(time.step.b_ps),
                RatioText(time.step.a_ps, time.step.b_ps), time.step.within ? "" : "<- beyond"});
  for (const TimePair& row : time.streams) table.AddRow(TimeCells(row, "stream " + row.name));
  AddKinds(time.kinds, table);
  std::string text =
      fmt::format("\nTime of a {} step, by stream and by kind of op\n", time.program) +
      table.Render(2, width);
  if (time.ops.empty()) return text;
  TextTable ops({Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  ops.AddRow({labels.a, labels.b, "ratio", "ops that differ most"});
  for (const OpTimePair& row : time.ops) {
    ops.AddRow({TimeText(row.a_ps), TimeText(row.b_ps), RatioText(row.a_ps, row.b_ps),
                fmt::format("{}, {} {}{}", PhaseName(row.op.phase()), row.op.kind(),
                            row.op.kernel().empty() ? row.op.unit() : row.op.kernel(),
                            row.op.module().empty() ? "" : ", " + row.op.module())});
  }
  return text + ops.Render(2, width);
}

// ---- verdict

std::string Outcome(const Verdict& verdict, const char* unit) {
  if (!verdict.judged) return "not judged";
  if (verdict.within) return fmt::format("within: {}", Counted(verdict.compared, unit));
  return fmt::format("BEYOND: {} of {}", FormatCount(verdict.beyond),
                     Counted(verdict.compared, unit));
}

std::string VerdictText(const ReportJoin& join, int width) {
  TextTable table({Align::kLeft, Align::kLeft});
  std::string unjudged;
  for (const Verdict& verdict : join.verdicts) {
    const char* unit = verdict.tolerance == "memory" ? "op"
                       : verdict.tolerance == "time" ? "sum"
                                                     : "moment";
    const std::string limit = verdict.limit.empty() ? "" : "=" + verdict.limit;
    table.AddRow({verdict.tolerance + limit, Outcome(verdict, unit)});
    if (verdict.tolerance == "time" && !verdict.judged) {
      unjudged = Wrapped(
          "times are of the hardware named above each; --tolerance time=50% or time=2x judges them",
          "  ", width);
    }
  }
  return "\nTolerance\n" + table.Render(2, width) + unjudged +
         (join.within ? "WITHIN TOLERANCE\n" : "BEYOND TOLERANCE\n");
}

}  // namespace

std::string RenderJoin(const NamedReport& a, const NamedReport& b, const ReportJoin& join,
                       int width) {
  const Labels labels = LabelsOf(a.report, b.report);
  return HeadText(a, b, join, labels, width) + MomentsText(join, labels, width) +
         MemoryText(join.memory, labels, width) + TimesText(join, labels, width) +
         VerdictText(join, width);
}

}  // namespace foreshard
