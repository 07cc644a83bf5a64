// Memory at events: what is alive when each of them is issued.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tests/golden/golden_compare.h"

namespace foreshard::golden {
namespace {

Lines AliveLines(const Alive& alive) {
  Lines lines;
  for (const auto& [holder, bytes] : alive) lines.push_back(fmt::format("{} {}", holder, bytes));
  return lines;
}

}  // namespace

Lines AliveDifferences(std::string_view title, const std::vector<Event>& recorded,
                       const std::vector<Event>& planned) {
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (recorded[i].alive == planned[i].alive) continue;
    std::string before;
    for (size_t j = i < 3 ? 0 : i - 3; j < i; ++j) before += "    " + Line(recorded[j]) + "\n";
    return {
        FirstDifference(fmt::format("{}: managed bytes when event {} is issued, after\n{}  > {}\n",
                                    title, recorded[i].position, before, Line(recorded[i])),
                        AliveLines(recorded[i].alive), AliveLines(planned[i].alive))};
  }
  return {};
}

bool IsCloseTotal(int64_t recorded, int64_t planned, const Record& plan, bool whole_model) {
  const double share = whole_model ? 0.01 : 0.03;
  double allowed = share * static_cast<double>(recorded);
  if (!whole_model) allowed = std::max(allowed, static_cast<double>(plan.largest_temporary));
  return static_cast<double>(std::abs(planned - recorded)) <= allowed;
}

TotalComparison CompareTotals(const std::vector<Event>& recorded, const std::vector<Event>& planned,
                              const Record& plan, bool whole_model) {
  TotalComparison result;
  size_t equal = 0;
  double worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const int64_t a = recorded[i].memory.value_or(0);
    const int64_t b = planned[i].memory.value_or(0);
    equal += a == b ? 1 : 0;
    const double apart = static_cast<double>(b - a) / static_cast<double>(a);
    if (std::abs(apart) > std::abs(worst)) {
      worst = apart;
      worst_at = i;
    }
    if (IsCloseTotal(a, b, plan, whole_model) || !result.differences.empty()) continue;
    result.differences.push_back(
        fmt::format("bytes alive at {}: recorded {}, planned {}", Line(recorded[i]), a, b));
  }
  result.info = fmt::format("bytes alive equal at {} of {} events", equal, recorded.size());
  if (equal == recorded.size()) return result;
  result.info +=
      fmt::format(", most apart by {:+.2f} % at {}", 100 * worst, KindLine(recorded[worst_at]));
  return result;
}

}  // namespace foreshard::golden
