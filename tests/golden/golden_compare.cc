#include "tests/golden/golden_compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/golden/golden_case.h"

namespace foreshard::golden {
namespace {

constexpr size_t kContext = 3;  // lines shown before and after a difference

std::string Excerpt(const Lines& lines, size_t at) {
  std::string text;
  const size_t first = at < kContext ? 0 : at - kContext;
  for (size_t i = first; i < std::min(lines.size(), at + kContext + 1); ++i) {
    text += fmt::format("  {} {:4} {}\n", i == at ? '>' : ' ', i, lines[i]);
  }
  if (at >= lines.size()) text += "  > the list ends\n";
  return text;
}

Lines EventLines(const std::vector<Event>& events, bool collectives_only) {
  Lines lines;
  for (const Event& event : events) {
    const bool collective = event.kind == "all_gather" || event.kind == "reduce_scatter";
    if (collective || !collectives_only) lines.push_back(Line(event));
  }
  return lines;
}

// A gradient divide factor changes the operator that is sent and nothing else; a PlanRequest cannot
// ask for one.
void ForgetReductions(std::vector<Event>& events) {
  for (Event& event : events) {
    if (event.kind == "reduce_scatter") event.how = "any operator";
  }
}

}  // namespace

std::string FirstDifference(std::string_view title, const Lines& recorded, const Lines& planned) {
  if (recorded == planned) return "";
  const size_t common = std::min(recorded.size(), planned.size());
  const auto at = static_cast<size_t>(
      std::mismatch(recorded.begin(), recorded.begin() + static_cast<std::ptrdiff_t>(common),
                    planned.begin())
          .first -
      recorded.begin());
  return fmt::format("{}: item {} differs\n recorded ({} items):\n{} planned ({} items):\n{}",
                     title, at, recorded.size(), Excerpt(recorded, at), planned.size(),
                     Excerpt(planned, at));
}

Lines Differences(const json& document, const pb::Plan& plan, const pb::Report& report) {
  const bool whole = IsEndToEnd(document);
  Record recorded = RecordOf(document);
  Record planned = RecordOf(plan, whole);
  if (!whole && document.at("case").contains("gradient_divide_factor")) {
    for (Record* record : {&recorded, &planned}) {
      for (std::vector<Event>& events : record->events) ForgetReductions(events);
    }
  }
  Lines differences;
  const auto add = [&](std::string_view title, const Lines& a, const Lines& b) {
    if (std::string text = FirstDifference(title, a, b); !text.empty()) {
      differences.push_back(std::move(text));
    }
  };
  add("units", recorded.units, planned.units);
  for (int i = 0; i < 2; ++i) {
    add(fmt::format("collectives of iteration {}", i), EventLines(recorded.events[i], true),
        EventLines(planned.events[i], true));
    if (whole) continue;
    add(fmt::format("events of iteration {}", i), EventLines(recorded.events[i], false),
        EventLines(planned.events[i], false));
  }
  add("kinds of events of iteration 1", recorded.kinds, planned.kinds);
  add("saved activations", recorded.saved, planned.saved);
  const Lines memory = MemoryDifferences(document, plan, report);
  differences.insert(differences.end(), memory.begin(), memory.end());
  return differences;
}

}  // namespace foreshard::golden
