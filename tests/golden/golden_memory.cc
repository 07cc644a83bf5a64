// Memory of phases: recorded bytes against the report's.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "tests/golden/golden_case.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/plan_events.h"

namespace foreshard::golden {
namespace {

using Bytes = std::map<std::string, int64_t>;  // by category

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
    if (c.bytes() != 0) bytes[CategoryText(c.category())] += c.bytes();
  }
  return bytes;
}

int64_t Total(const Bytes& bytes) {
  int64_t total = 0;
  for (const auto& [category, count] : bytes) {
    if (IsRecorded(category)) total += count;
  }
  return total;
}

// The recorder takes the copies of gradients that a reduction along another dimension than the
// first makes for outputs of the reduction: it files whatever is allocated there so. Plans call
// them what they are.
Bytes WithoutCopiesOfGradients(Bytes bytes) {
  const auto output = bytes.find("rs_output");
  if (output == bytes.end()) return bytes;
  bytes["unsharded_grad"] += output->second;
  bytes.erase(output);
  return bytes;
}

Lines ManagedLines(const Bytes& bytes) {
  Lines lines;
  for (const auto& [category, count] : bytes) {
    if (IsManaged(category)) lines.push_back(fmt::format("{} {}", category, count));
  }
  return lines;
}

// Absent and null are outside micro-batches.
int MicroBatchOf(const json& phase) {
  return phase.contains("mb") && !phase["mb"].is_null() ? phase["mb"].get<int>() : 0;
}

// The phase that the record speaks of. Clipping and what follows are outside micro-batches.
const pb::PhaseMemory* FindPhase(const pb::Plan& plan, const pb::Report& report,
                                 const json& recorded) {
  const std::string name = recorded.at("ph");
  const bool in_micro_batch = name == "fwd" || name == "bwd";
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() != ProgramOf(plan, recorded.at("it")).name()) continue;
    if (PhaseText(phase.phase()) != name) continue;
    if (in_micro_batch && phase.micro_batch() != MicroBatchOf(recorded)) continue;
    return &phase;
  }
  return nullptr;
}

// Position of an op among all that its program issues.
int64_t PositionOf(const pb::Plan& plan, const pb::OpRef& at) {
  for (const pb::Program& program : plan.programs()) {
    if (program.name() != at.program()) continue;
    int64_t position = 0;
    for (const pb::SegmentUse& use : program.uses()) {
      const pb::Segment& segment = plan.segments(use.segment());
      if (segment.name() == at.segment()) {
        return position + static_cast<int64_t>(at.repetition()) * segment.ops_size() + at.op();
      }
      position += static_cast<int64_t>(use.repeat()) * segment.ops_size();
    }
  }
  return -1;
}

// The events of a phase up to some moment: which one is the last, and the how manieth of its kind
// and unit it is.
class LastEvent {
 public:
  void Pass(const std::string& phase, const std::string& kind, const std::string& unit) {
    if (phase != phase_) count_.clear();
    phase_ = phase;
    name_ = kind + " " + unit;
    ++count_[name_];
  }
  std::string text() const {
    if (name_.empty()) return "";
    const int count = count_.at(name_);
    return count == 1 ? name_ : fmt::format("{} ({})", name_, count);
  }

 private:
  std::string phase_;
  std::string name_;
  std::map<std::string, int> count_;
};

// The last event at or before the op; "" when there is none.
std::string EventAt(const pb::Plan& plan, const Record& planned, const pb::OpRef& at) {
  const int64_t position = PositionOf(plan, at);
  LastEvent last;
  int iteration = 0;
  while (ProgramOf(plan, iteration).name() != at.program()) ++iteration;
  for (const Event& event : planned.events[iteration]) {
    if (event.position > position) break;
    last.Pass(fmt::format("{}{}", event.phase, event.micro_batch), event.kind, event.unit);
  }
  return last.text();
}

// The same of the recorded total peak; nothing for a peak at the phase's start.
std::optional<std::string> RecordedEventAt(const json& document, const json& phase) {
  if (phase.at("peak_after_event").is_null()) return std::nullopt;
  LastEvent last;
  for (const json& e : document.at("events")) {
    if (e.at("i") > phase["peak_after_event"]) break;
    if (!IsModelled(e.at("k"))) continue;
    last.Pass(fmt::format("{}{}", e.at("ph").get<std::string>(), e.value("mb", 0)), e["k"],
              e.value("unit", ""));
  }
  return last.text();
}

// Whole models name the event, not its index: the first of the name is meant where there are more.
std::optional<std::string> WholeRecordedEventAt(const json& document, const json& phase) {
  const json& peak = phase.at("peak_at");
  if (peak.is_null()) return std::nullopt;
  std::string name = phase.at("ph");
  if (name == "fwd" || name == "bwd") name += std::to_string(MicroBatchOf(phase));
  LastEvent last;
  for (const json& row : document.at("memory").at("events_it1")) {
    const std::string unit = row.at(1).is_null() ? "" : row[1].get<std::string>();
    if (IsModelled(row.at(0))) last.Pass(row.at(2), row[0], unit);
    if (row.at(2) == name && row[0] == peak.at("after") && row[1] == peak.at("unit")) {
      return last.text();
    }
  }
  return std::nullopt;
}

class PhaseComparison {
 public:
  PhaseComparison(const json& document, const json& recorded, const pb::Plan& plan,
                  const Record& planned, const pb::PhaseMemory& reported)
      : document_(document),
        recorded_(recorded),
        plan_(plan),
        planned_(planned),
        reported_(reported),
        whole_(IsEndToEnd(document)),
        title_(fmt::format("iteration {} {}{}", recorded.at("it").get<int>(),
                           recorded.at("ph").get<std::string>(), MicroBatchOf(recorded))) {}

  Lines Run() {
    Managed();
    Add("managed categories at the end", RecordedBytes(recorded_.at("end_by_category")),
        ReportedBytes(reported_.end_by_category()));
    AtPeak();
    Peak();
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
    const std::optional<std::string> expected =
        whole_ ? WholeRecordedEventAt(document_, recorded_) : RecordedEventAt(document_, recorded_);
    if (!expected || !reported_.has_peak_at()) return;
    if (*expected != EventAt(plan_, planned_, reported_.peak_at())) return;
    // Between two events of a small model, peaks that differ within the tolerance are at different
    // kernels, with more or fewer gradients.
    if (!whole_ && Total(ReportedBytes(reported_.peak_by_category())) != recorded_.at("peak")) {
      return;
    }
    Add("managed categories at the peak, after " + *expected,
        RecordedBytes(recorded_.at("peak_by_category")),
        ReportedBytes(reported_.peak_by_category()));
  }

  void Peak() {
    const int64_t total = Total(ReportedBytes(reported_.peak_by_category()));
    const int64_t expected = recorded_.at("peak");
    if (IsCloseTotal(expected, total, planned_, whole_)) return;
    differences_.push_back(
        fmt::format("{}: total peak recorded {} {}, planned {} {} ({:+.2f} %), planned at {}",
                    title_, expected, recorded_.at("peak_by_category").dump(), total,
                    json(ReportedBytes(reported_.peak_by_category())).dump(),
                    100.0 * static_cast<double>(total - expected) / static_cast<double>(expected),
                    Where(reported_.peak_at())));
  }

  void Add(const std::string& what, Bytes recorded, Bytes reported) {
    if (!whole_ && document_.at("case").value("shard_dim1", false)) {
      recorded = WithoutCopiesOfGradients(std::move(recorded));
      reported = WithoutCopiesOfGradients(std::move(reported));
    }
    std::string text =
        FirstDifference(title_ + ": " + what, ManagedLines(recorded), ManagedLines(reported));
    if (!text.empty()) differences_.push_back(std::move(text));
  }

  std::string Where(const pb::OpRef& at) const {
    return fmt::format("op {} {} {} of unit \"{}\", module \"{}\", after {}", at.op(), at.kind(),
                       at.kernel(), at.unit(), at.module(), EventAt(plan_, planned_, at));
  }

  const json& document_;
  const json& recorded_;
  const pb::Plan& plan_;
  const Record& planned_;
  const pb::PhaseMemory& reported_;
  bool whole_;
  std::string title_;
  Lines differences_;
};

}  // namespace

Lines PhaseDifferences(const json& document, const pb::Plan& plan, const Record& planned,
                       const pb::Report& report) {
  Lines differences;
  for (const json& phase : document.at("memory").at("phases")) {
    const pb::PhaseMemory* reported = FindPhase(plan, report, phase);
    if (!reported) {
      differences.push_back(fmt::format("the report lacks the phase {} of iteration {}",
                                        phase.at("ph").dump(), phase.at("it").dump()));
      continue;
    }
    const Lines found = PhaseComparison(document, phase, plan, planned, *reported).Run();
    differences.insert(differences.end(), found.begin(), found.end());
  }
  return differences;
}

}  // namespace foreshard::golden
