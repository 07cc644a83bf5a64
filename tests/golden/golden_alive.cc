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

std::string MemoryInfo(const std::vector<Event>& recorded, const std::vector<Event>& planned) {
  size_t equal = 0;
  double worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const auto a = static_cast<double>(recorded[i].memory.value_or(0));
    const auto b = static_cast<double>(planned[i].memory.value_or(0));
    if (a == b) ++equal;
    if (std::abs(b - a) > std::abs(worst) * a) {
      worst = (b - a) / a;
      worst_at = i;
    }
  }
  std::string text = fmt::format("bytes alive equal at {} of {} events", equal, recorded.size());
  if (equal == recorded.size()) return text;
  return text +
         fmt::format(", most apart by {:+.2f} % at {}", 100 * worst, KindLine(recorded[worst_at]));
}

}  // namespace foreshard::golden
