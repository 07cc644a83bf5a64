#include "tests/golden/golden_compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/golden/golden_case.h"
#include "tests/golden/trace_text.h"

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

Lines EventLines(const std::vector<Event>& events) {
  Lines lines;
  for (const Event& event : events) lines.push_back(Line(event));
  return lines;
}

Lines CollectiveLines(const std::vector<Event>& events) {
  Lines lines;
  for (const Event& event : events) {
    const bool collective =
        event.kind == "all_gather" || event.kind == "reduce_scatter" || event.kind == "all_reduce";
    if (collective) lines.push_back(Line(event));
  }
  return lines;
}

Lines KindLines(const std::vector<Event>& events) {
  Lines lines;
  for (const Event& event : events) lines.push_back(KindLine(event));
  return lines;
}

class RecordComparison {
 public:
  RecordComparison(const Record& recorded, const Record& planned, bool whole_model)
      : recorded_(recorded), planned_(planned), whole_model_(whole_model) {}

  Comparison Run() {
    Add("units", recorded_.units, planned_.units);
    for (int i = 0; i < 3; ++i) {
      if (recorded_.events[i].empty()) continue;  // not run, or as the one before
      if (whole_model_) {
        Add(fmt::format("collectives of iteration {}", i), CollectiveLines(recorded_.events[i]),
            CollectiveLines(planned_.events[i]));
      } else {
        Iteration(i);
      }
    }
    if (whole_model_) Kinds();
    Add("saved activations", recorded_.saved, planned_.saved);
    return std::move(result_);
  }

 private:
  bool Add(std::string_view title, const Lines& recorded, const Lines& planned) {
    std::string text = FirstDifference(title, recorded, planned);
    if (text.empty()) return true;
    result_.differences.push_back(std::move(text));
    return false;
  }

  void Iteration(int i) {
    const std::vector<Event>& recorded = recorded_.events[i];
    const std::vector<Event>& planned = planned_.events[i];
    const std::string title = fmt::format("events of iteration {}", i);
    if (!Add(title, EventLines(recorded), EventLines(planned))) return;
    Lines alive = AliveDifferences(title, recorded, planned);
    std::move(alive.begin(), alive.end(), std::back_inserter(result_.differences));
    Totals(recorded, planned);
  }

  void Kinds() {
    if (!Add("kinds of events of iteration 1", KindLines(recorded_.kinds),
             KindLines(planned_.kinds))) {
      return;
    }
    Totals(recorded_.kinds, planned_.kinds);
  }

  void Totals(const std::vector<Event>& recorded, const std::vector<Event>& planned) {
    TotalComparison totals = CompareTotals(recorded, planned, planned_, whole_model_);
    std::move(totals.differences.begin(), totals.differences.end(),
              std::back_inserter(result_.differences));
    result_.info = totals.info;
  }

  const Record& recorded_;
  const Record& planned_;
  const bool whole_model_;
  Comparison result_;
};

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

Comparison Compare(const json& document, const pb::Plan& plan, const pb::Report& report) {
  PlanRecordOptions options;
  options.rank = RankOf(document);
  options.whole_model = IsEndToEnd(document);
  options.has_recycle = !document.at("torch").get<std::string>().starts_with("2.6");
  options.whole_gradients = KeepsWholeGradients(document);
  options.has_recompute = !options.whole_model || document.at("spec").value("ac", "none") != "hf";
  const Record recorded = RecordOf(document);
  const Record planned = RecordOf(plan, options);
  Comparison result = RecordComparison(recorded, planned, options.whole_model).Run();
  Lines phases = PhaseDifferences(document, plan, planned, report);
  std::move(phases.begin(), phases.end(), std::back_inserter(result.differences));
  return result;
}

}  // namespace foreshard::golden
