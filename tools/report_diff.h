// What differs between two reports, figure by figure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace foreshard::pb {
class Report;
}

namespace foreshard {

// How a figure is written for people; its JSON form is the plain value.
enum class FigureKind {
  kText,
  kCount,
  kNumber,
  kShare,  // 0 to 1
  kBytes,
  kTime,  // picoseconds
  kUnit,  // a whole UnitReport, of a unit that only one report has
};

struct Difference {
  std::string section;  // "fit", "ledger", ...
  std::string name;     // of the figure in its section
  FigureKind kind = FigureKind::kText;
  nlohmann::ordered_json a;  // null = the report has none
  nlohmann::ordered_json b;
};

// In the order of the report's fields; equal figures are left out. Units that are alike in both
// reports (UnitsAlike) are one, with the figures of the first.
std::vector<Difference> Differences(const pb::Report& a, const pb::Report& b);

// {"schema_version", "a", "b", "differences": [{"section", "name", "unit", "a", "b", "change"}]}.
nlohmann::ordered_json DifferencesAsJson(const std::string& name_a, const std::string& name_b,
                                         const std::vector<Difference>& differences);

}  // namespace foreshard
