#include "proto/plan_check_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/happens_before.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard {
namespace {

using plan_check::OpKind;
using Reason = HappensBefore::Reason;

// Finds the waits that are implied wherever their op runs.
class RedundantWalk {
 public:
  explicit RedundantWalk(const pb::Plan& plan) : plan_(plan), order_(plan) {
    for (const pb::Segment& segment : plan.segments()) {
      std::vector<size_t>& first = first_.emplace_back();
      for (const pb::Op& op : segment.ops()) {
        first.push_back(implied_.size());
        implied_.resize(implied_.size() + static_cast<size_t>(Waits(op)), true);
      }
    }
    reached_.resize(implied_.size());
  }

  void BeginProgram(int) {}
  void BeginSegment(int number, int segment, int) { order_.BeginSegment(number, segment); }
  Status EndProgram(int) { return OkStatus(); }

  Status Visit(int segment, int index) {
    const pb::Op& op = plan_.segments(segment).ops(index);
    size_t slot = first_[static_cast<size_t>(segment)][static_cast<size_t>(index)];
    const auto test = [&](Reason reason, int count) {
      for (int i = 0; i < count; ++i, ++slot) {
        reached_[slot] = true;
        if (!order_.IsImplied(index, reason, i)) implied_[slot] = false;
      }
    };
    test(Reason::kHostWait, op.host_waits_size());
    test(Reason::kEventWait, op.event_waits_size());
    test(Reason::kWait, op.waits_size());
    test(Reason::kStreamWait, op.stream_wait().on_size());
    order_.Issue(index);
    return OkStatus();
  }

  PlanFacts Facts() const {
    PlanFacts facts;
    facts.buffers = plan_.buffers_size();
    facts.kernels = plan_.kernels_size();
    facts.waits = static_cast<int64_t>(implied_.size());
    size_t slot = 0;
    for (const pb::Segment& segment : plan_.segments()) {
      facts.ops += segment.ops_size();
      for (int i = 0; i < segment.ops_size(); ++i) AddOp(segment, i, slot, facts);
    }
    std::stable_sort(facts.redundant_waits.begin(), facts.redundant_waits.end(),
                     [](const auto& a, const auto& b) { return a.count > b.count; });
    return facts;
  }

 private:
  static int Waits(const pb::Op& op) {
    return op.host_waits_size() + op.event_waits_size() + op.waits_size() +
           op.stream_wait().on_size();
  }

  void AddOp(const pb::Segment& segment, int index, size_t& slot, PlanFacts& facts) const {
    const pb::Op& op = segment.ops(index);
    const auto add = [&](const std::string& waiter, const std::string& on) {
      const size_t s = slot++;
      if (!implied_[s] || !reached_[s]) return;
      ++facts.redundant;
      auto& found = facts.redundant_waits;
      const auto same = std::find_if(found.begin(), found.end(), [&](const RedundantWaits& r) {
        return r.waiter == waiter && r.on == on;
      });
      if (same != found.end()) {
        ++same->count;
        return;
      }
      found.push_back({waiter, on, 1, plan_check::OpPlace(plan_, segment, index)});
    };
    const std::string kind = OpKind(op);
    for (const int32_t w : op.host_waits()) add("host (" + kind + ")", OpKind(segment.ops(w)));
    for (const pb::EventWait& w : op.event_waits()) {
      add("host (" + kind + ")", "event " + plan_.events(w.event()).name());
    }
    for (const int32_t w : op.waits()) add(kind, OpKind(segment.ops(w)));
    for (const int32_t on : op.stream_wait().on()) add(kind, "stream " + plan_.streams(on).name());
  }

  const pb::Plan& plan_;
  HappensBefore order_;
  std::vector<std::vector<size_t>> first_;  // per segment and op: its first wait
  std::vector<bool> implied_;               // per wait
  std::vector<bool> reached_;               // its op runs at all
};

}  // namespace

PlanFacts AnalyzePlan(const pb::Plan& plan) {
  RedundantWalk walk(plan);
  CHECK(plan_check::WalkPlan(plan, walk).ok());
  return walk.Facts();
}

}  // namespace foreshard
