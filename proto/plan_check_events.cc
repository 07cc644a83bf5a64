// Rule event: which record of an event each wait of the host finds.
#include <fmt/format.h>

#include <vector>

#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

class EventWalk {
 public:
  explicit EventWalk(const pb::Plan& plan)
      : plan_(plan), records_(static_cast<size_t>(plan.events_size())) {}

  void BeginProgram(int number) {
    number_ = number;
    found_before_ = std::move(found_);
    found_.clear();
  }
  void BeginSegment(int, int, int) {}
  Status EndProgram(int) { return OkStatus(); }

  Status Visit(int segment, int index) {
    const pb::Op& op = plan_.segments(segment).ops(index);
    for (const pb::EventWait& wait : op.event_waits()) {
      RETURN_IF_ERROR(Find(wait, segment, index));
    }
    if (op.has_record()) records_[static_cast<size_t>(op.record())].push_back({&op, number_});
    return OkStatus();
  }

 private:
  struct Record {
    const pb::Op* op = nullptr;
    int program = 0;
  };

  Status Find(const pb::EventWait& wait, int segment, int index) {
    const std::vector<Record>& records = records_[static_cast<size_t>(wait.event())];
    const int count = static_cast<int>(records.size());
    if (count <= wait.back()) {
      return Broken(segment, index, wait,
                    fmt::format("of which there have been {}, and looks past {} of them", count,
                                wait.back()));
    }
    const Record& found = records[static_cast<size_t>(count - 1 - wait.back())];
    found_.push_back({found.op, number_ - found.program});
    // `steady` follows itself: what it finds now is compared with what it has found before.
    if (number_ < plan_.programs_size()) return OkStatus();
    const Record& before = found_before_[found_.size() - 1];
    if (Same(found_.back(), before)) return OkStatus();
    return Broken(segment, index, wait,
                  fmt::format("and finds {}, in the step before {}", Describe(found_.back()),
                              Describe(before)));
  }

  // A step that came before the first steady one has other ops in its place.
  static bool Same(const Record& a, const Record& b) {
    return a.program == b.program && a.op->kind_case() == b.op->kind_case() &&
           a.op->phase() == b.op->phase() && a.op->has_unit() == b.op->has_unit() &&
           a.op->unit() == b.op->unit() && a.op->record_stream() == b.op->record_stream();
  }

  std::string Describe(const Record& record) const {
    const pb::Op& op = *record.op;
    return fmt::format("that of a {} of {} in {}, {} steps back", OpKind(op),
                       op.has_unit() ? fmt::format("unit \"{}\"", plan_.units(op.unit()).name())
                                     : std::string("no unit"),
                       pb::Phase_Name(op.phase()), record.program);
  }

  Status Broken(int segment, int index, const pb::EventWait& wait, const std::string& what) const {
    return plan_check::Broken(
        "event", OpPlace(plan_, plan_.segments(segment), index),
        fmt::format("waits for a record of event \"{}\", {} (program \"{}\")",
                    plan_.events(wait.event()).name(), what, WalkedProgram(plan_, number_).name()));
  }

  const pb::Plan& plan_;
  int number_ = 0;
  std::vector<std::vector<Record>> records_;  // per event, since the start
  // What the waits of this program, and of the one before it, have found; `program` counts back.
  std::vector<Record> found_;
  std::vector<Record> found_before_;
};

}  // namespace

Status CheckEvents(const pb::Plan& plan) {
  if (plan.events().empty()) return OkStatus();
  EventWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
