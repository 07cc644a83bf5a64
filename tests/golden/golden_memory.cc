// Memory of phases: recorded bytes against the report's.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "tests/golden/golden_case.h"
#include "tests/golden/golden_compare.h"

namespace foreshard::golden {
namespace {

// Reference-count bytes of the traces leave out what only an allocator sees, and inputs; a peak may
// then lie at another allocation.
constexpr double kPeakTolerance = 0.01;

using Bytes = std::map<std::string, int64_t>;  // by category

bool IsManaged(const std::string& category) {
  static const std::set<std::string> kOthers = {"activation", "temp",          "recompute",
                                                "input",      "module_buffer", "workspace"};
  return !kOthers.contains(category);
}

bool IsRecorded(const std::string& category) {
  return category != "input" && category != "module_buffer" && category != "workspace";
}

Bytes RecordedBytes(const json& by_category) {
  Bytes bytes;
  for (const auto& [category, count] : by_category.items()) {
    if (count != 0) bytes[category] = count;
  }
  return bytes;
}

template <typename Categories>
Bytes ReportedBytes(const Categories& categories) {
  Bytes bytes;
  for (const pb::CategoryBytes& c : categories) {
    std::string name = pb::Category_Name(c.category());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return std::tolower(letter); });
    if (c.bytes() != 0) bytes[name] += c.bytes();
  }
  return bytes;
}

Lines ManagedLines(const Bytes& bytes) {
  Lines lines;
  for (const auto& [category, count] : bytes) {
    if (IsManaged(category)) lines.push_back(fmt::format("{} {}", category, count));
  }
  return lines;
}

const pb::PhaseMemory* FindPhase(const pb::Report& report, int iteration, const std::string& name) {
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() == (iteration == 0 ? "first" : "steady") &&
        PhaseName(phase.phase()) == name) {
      return &phase;
    }
  }
  return nullptr;
}

// Kind and unit of the last event that plans have too, at or before the op; "" when there is none.
std::string EventAt(const pb::Plan& plan, const pb::OpRef& at) {
  std::string last;
  for (const pb::Program& program : plan.programs()) {
    if (program.name() != at.program()) continue;
    for (const pb::SegmentUse& use : program.uses()) {
      const pb::Segment& segment = plan.segments(use.segment());
      for (int repetition = 0; repetition < use.repeat(); ++repetition) {
        for (int op = 0; op < segment.ops_size(); ++op) {
          const Event event = EventOf(plan, segment.ops(op));
          if (!event.kind.empty()) last = event.kind + " " + event.unit;
          if (segment.name() == at.segment() && repetition == at.repetition() && op == at.op()) {
            return last;
          }
        }
      }
    }
  }
  return "";
}

std::string LastModelled(const std::vector<std::pair<std::string, std::string>>& events,
                         size_t at) {
  for (size_t i = at + 1; i > 0; --i) {
    const auto& [kind, unit] = events[i - 1];
    if (IsModelled(kind)) return kind + " " + unit;
  }
  return "";
}

std::string UnitOf(const json& unit) { return unit.is_null() ? "" : unit.get<std::string>(); }

// The same of the recorded total peak; nothing for a peak at the phase's start.
std::optional<std::string> RecordedEventAt(const json& document, const json& phase) {
  std::vector<std::pair<std::string, std::string>> events;
  std::optional<size_t> at;
  if (!IsEndToEnd(document)) {
    if (phase.at("peak_after_event").is_null()) return std::nullopt;
    for (const json& e : document.at("events")) {
      if (e.at("i") == phase["peak_after_event"]) at = events.size();
      events.emplace_back(e.at("k"), e.value("unit", ""));
    }
  } else {
    const json& peak = phase.at("peak_at");
    const std::string name = phase.at("ph");
    if (peak.is_null()) return std::nullopt;
    for (const json& row : document.at("memory").at("events_it1")) {
      const bool same_phase = row.at(2).get<std::string>().starts_with(name);
      if (!at && same_phase && row.at(0) == peak.at("after") && row.at(1) == peak.at("unit")) {
        at = events.size();
      }
      events.emplace_back(row.at(0), UnitOf(row.at(1)));
    }
  }
  if (!at) return std::nullopt;
  return LastModelled(events, *at);
}

class PhaseComparison {
 public:
  PhaseComparison(const json& document, const json& recorded, const pb::Plan& plan,
                  const pb::PhaseMemory& reported)
      : document_(document),
        recorded_(recorded),
        plan_(plan),
        reported_(reported),
        title_(fmt::format("iteration {} {}", recorded.at("it").get<int>(),
                           recorded.at("ph").get<std::string>())) {}

  Lines Run() {
    Managed();
    Add("managed categories at the end", RecordedBytes(recorded_.at("end_by_category")),
        ReportedBytes(reported_.end_by_category()));
    AtPeak();
    if (IsEndToEnd(document_)) Total();
    return std::move(differences_);
  }

 private:
  void Managed() {
    const int64_t expected = recorded_.at("fsdp_peak");
    if (reported_.managed_peak_bytes() != expected) {
      differences_.push_back(fmt::format(
          "{}: managed peak recorded {}, planned {} (difference {}), planned at {}", title_,
          expected, reported_.managed_peak_bytes(), reported_.managed_peak_bytes() - expected,
          Where(reported_.managed_peak_at())));
    }
    if (recorded_.contains("fsdp_peak_by_category") &&
        !recorded_["fsdp_peak_by_category"].empty()) {
      Add("managed categories at the managed peak",
          RecordedBytes(recorded_["fsdp_peak_by_category"]),
          ReportedBytes(reported_.managed_peak_by_category()));
    }
  }

  void AtPeak() {
    const std::optional<std::string> expected = RecordedEventAt(document_, recorded_);
    if (!expected || !reported_.has_peak_at()) return;
    if (*expected != EventAt(plan_, reported_.peak_at())) return;
    Add("managed categories at the peak, after " + *expected,
        RecordedBytes(recorded_.at("peak_by_category")),
        ReportedBytes(reported_.peak_by_category()));
  }

  void Total() {
    const std::string phase = recorded_.at("ph");
    if (phase != "fwd" && phase != "bwd") return;
    int64_t total = 0;
    for (const auto& [category, bytes] : ReportedBytes(reported_.peak_by_category())) {
      if (IsRecorded(category)) total += bytes;
    }
    const int64_t expected = recorded_.at("peak");
    if (static_cast<double>(std::abs(total - expected)) <=
        kPeakTolerance * static_cast<double>(expected)) {
      return;
    }
    differences_.push_back(
        fmt::format("{}: total peak recorded {} {}, planned {} {} ({:+.2f} %), planned at {}",
                    title_, expected, recorded_.at("peak_by_category").dump(), total,
                    json(ReportedBytes(reported_.peak_by_category())).dump(),
                    100.0 * static_cast<double>(total - expected) / static_cast<double>(expected),
                    Where(reported_.peak_at())));
  }

  void Add(const std::string& what, const Bytes& recorded, const Bytes& reported) {
    std::string text =
        FirstDifference(title_ + ": " + what, ManagedLines(recorded), ManagedLines(reported));
    if (!text.empty()) differences_.push_back(std::move(text));
  }

  std::string Where(const pb::OpRef& at) const {
    return fmt::format("op {} {} {} of unit \"{}\", module \"{}\", after {}", at.op(), at.kind(),
                       at.kernel(), at.unit(), at.module(), EventAt(plan_, at));
  }

  const json& document_;
  const json& recorded_;
  const pb::Plan& plan_;
  const pb::PhaseMemory& reported_;
  std::string title_;
  Lines differences_;
};

}  // namespace

Lines MemoryDifferences(const json& document, const pb::Plan& plan, const pb::Report& report) {
  Lines differences;
  for (const json& phase : document.at("memory").at("phases")) {
    const int iteration = phase.at("it");
    const std::string name = phase.at("ph");
    if (iteration > 1) continue;
    const pb::PhaseMemory* reported = FindPhase(report, iteration, name);
    if (!reported) {
      differences.push_back(fmt::format("iteration {} {}: the report lacks it", iteration, name));
      continue;
    }
    const Lines found = PhaseComparison(document, phase, plan, *reported).Run();
    differences.insert(differences.end(), found.begin(), found.end());
  }
  return differences;
}

}  // namespace foreshard::golden
