#include "tools/render/diff_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "proto/base/units.h"
#include "proto/base/units_text.h"
#include "proto/report.pb.h"
#include "tools/render/figures.h"
#include "tools/render/report_sections.h"
#include "tools/render/text_table.h"

namespace foreshard {
namespace {

using Align = TextTable::Align;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestCell = 26;
constexpr double kLargestShare = 10;

std::string UnitValue(const Json& unit) {
  const auto at = [&](const char* key) { return unit.at(key).get<int64_t>(); };
  return fmt::format(
      "{} parameters, {} gathered {} time{}, {} in flight, {} exposed",
      FormatCount(at("parameters")), FormatBytes(Bytes(at("gather_bytes"))), at("gathers"),
      at("gathers") == 1 ? "" : "s",
      TimeText(at("gather_ps") + at("reduce_ps") + at("all_reduce_ps")),
      TimeText(at("exposed_gather_ps") + at("exposed_reduce_ps") + at("exposed_all_reduce_ps")));
}

std::string Value(FigureKind kind, const Json& value) {
  if (value.is_null()) return "-";
  switch (kind) {
    case FigureKind::kText:
      return value.get<std::string>().empty() ? "-" : value.get<std::string>();
    case FigureKind::kCount:
      return FormatCount(value.get<int64_t>());
    case FigureKind::kNumber:
      return fmt::format("{:.6g}", value.get<double>());
    case FigureKind::kShare:
      return fmt::format("{:.1f} %", 100 * value.get<double>());
    case FigureKind::kBytes:
      return FormatBytes(Bytes(value.get<int64_t>()));
    case FigureKind::kTime:
      return TimeText(value.get<int64_t>());
    case FigureKind::kUnit:
      return UnitValue(value);
  }
  return "?";
}

// "+1.50 GiB (+12.3 %)"; "" where there is nothing to subtract.
std::string Change(const Difference& d) {
  if (!d.a.is_number() || !d.b.is_number()) return "";
  const double before = d.a.get<double>();
  const double change = d.b.get<double>() - before;
  const std::string sign = change < 0 ? "-" : "+";
  if (d.kind == FigureKind::kShare) return fmt::format("{:+.1f} points", 100 * change);
  const Json size = d.kind == FigureKind::kNumber
                        ? Json(std::abs(change))
                        : Json(std::abs(d.b.get<int64_t>() - d.a.get<int64_t>()));
  // Many times what was next to nothing says nothing.
  const bool comparable = before > 0 && std::abs(change) < kLargestShare * before;
  const std::string share = comparable ? fmt::format(" ({:+.1f} %)", 100 * change / before) : "";
  return sign + Value(d.kind, size) + share;
}

bool FitsATable(const Difference& d) {
  return d.kind != FigureKind::kUnit && Value(d.kind, d.a).size() <= kLongestCell &&
         Value(d.kind, d.b).size() <= kLongestCell;
}

// What is too long for columns stands below its name.
std::string Below(const Difference& d, int width) {
  std::string text = d.name.empty() ? "" : "  " + d.name + "\n";
  if (!d.a.is_null()) text += Wrapped(Value(d.kind, d.a), "    A: ", width);
  if (!d.b.is_null()) text += Wrapped(Value(d.kind, d.b), "    B: ", width);
  return text;
}

std::string Section(const std::string& name, const std::vector<Difference>& all, int width) {
  TextTable table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.AddRow({"", "A", "B", "change"});
  std::string below;
  bool rows = false;
  for (const Difference& d : all) {
    if (d.section != name) continue;
    if (FitsATable(d)) {
      table.AddRow({d.name, Value(d.kind, d.a), Value(d.kind, d.b), Change(d)});
      rows = true;
    } else {
      below += Below(d, width);
    }
  }
  if (!rows && below.empty()) return "";
  return "\n" + name + "\n" + (rows ? table.Render(2, width) : "") + below;
}

// The headline of a report below the name of its file.
std::string Head(const std::string& letter, const std::string& name, const pb::Report& report,
                 int width) {
  constexpr int kIndent = 3;
  std::istringstream lines(HeadlineText(report, {.width = width - kIndent}));
  std::string text = letter + ": " + name + "\n";
  for (std::string line; std::getline(lines, line);) {
    text += std::string(kIndent, ' ') + line + "\n";
  }
  return text;
}

}  // namespace

std::string RenderDifferences(const std::string& name_a, const pb::Report& a,
                              const std::string& name_b, const pb::Report& b,
                              const std::vector<Difference>& differences, int width) {
  std::string text = Head("A", name_a, a, width) + Head("B", name_b, b, width);
  if (differences.empty()) return text + "\nno difference\n";
  std::vector<std::string> sections;
  for (const Difference& d : differences) {
    if (sections.empty() || sections.back() != d.section) sections.push_back(d.section);
  }
  for (const std::string& section : sections) text += Section(section, differences, width);
  return text;
}

}  // namespace foreshard
