#include "tests/testing/reference_schedule.h"

#include <algorithm>

namespace foreshard::sim {
namespace {

struct Item {
  const pb::Op* op = nullptr;
  int segment_begin = 0;  // position of the first op of its segment
};

std::vector<Item> Unroll(const pb::Plan& plan, const std::vector<int>& steps) {
  std::vector<Item> items;
  for (int step : steps) {
    for (const pb::SegmentUse& use : plan.programs(step).uses()) {
      for (int i = 0; i < use.repeat(); ++i) {
        const int begin = static_cast<int>(items.size());
        for (const pb::Op& op : plan.segments(use.segment()).ops()) items.push_back({&op, begin});
      }
    }
  }
  return items;
}

// Times are variables: the host's turn to op i is 2 i, its start on the device 2 i + 1.
// time[later] >= time[earlier] + lag.
struct Constraint {
  int later = 0;
  int earlier = 0;
  int64_t lag = 0;
};

int HostTurn(int i) { return 2 * i; }
int Start(int i) { return 2 * i + 1; }

class Constraints {
 public:
  explicit Constraints(const std::vector<Item>& items) : items_(items) {
    for (int i = 0; i < static_cast<int>(items.size()); ++i) AddOp(i);
  }

  std::vector<int64_t> Solve() const {
    std::vector<int64_t> time(2 * items_.size(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Constraint& c : all_) {
        if (time[c.later] >= time[c.earlier] + c.lag) continue;
        time[c.later] = time[c.earlier] + c.lag;
        changed = true;
      }
    }
    return time;
  }

 private:
  const pb::Op& op(int i) const { return *items_[i].op; }

  void AddOp(int i) {
    if (i > 0) all_.push_back({HostTurn(i), HostTurn(i - 1), op(i - 1).unit()});
    all_.push_back({Start(i), HostTurn(i), op(i).unit()});
    const int begin = items_[i].segment_begin;
    for (int wait : op(i).host_waits()) {
      all_.push_back({HostTurn(i), Start(begin + wait), op(begin + wait).module()});
    }
    for (const pb::EventWait& wait : op(i).event_waits()) {
      const int record = RecordBefore(i, wait);
      for (int earlier = 0; earlier <= record; ++earlier) {
        if (!op(earlier).has_stream()) continue;
        if (op(earlier).stream() != op(record).record_stream()) continue;
        all_.push_back({HostTurn(i), Start(earlier), op(earlier).module()});
      }
    }
    if (!op(i).has_stream()) return;
    for (int wait : op(i).waits()) After(i, begin + wait);
    for (int earlier = 0; earlier < i; ++earlier) {
      if (!op(earlier).has_stream()) continue;
      const auto& on = op(i).stream_wait().on();
      const bool awaited = std::find(on.begin(), on.end(), op(earlier).stream()) != on.end();
      const bool same_group = GroupOf(op(i)) >= 0 && GroupOf(op(i)) == GroupOf(op(earlier));
      if (op(earlier).stream() == op(i).stream() || awaited || same_group) After(i, earlier);
    }
  }

  // The op that has made the record which the op at i waits for.
  int RecordBefore(int i, const pb::EventWait& wait) const {
    int left = wait.back();
    for (int earlier = i - 1; earlier >= 0; --earlier) {
      const bool records = op(earlier).has_record() && op(earlier).record() == wait.event();
      if (records && left-- == 0) return earlier;
    }
    return -1;
  }

  static int GroupOf(const pb::Op& op) {
    if (op.has_all_gather()) return op.all_gather().group();
    if (op.has_reduce_scatter()) return op.reduce_scatter().group();
    if (op.has_broadcast()) return op.broadcast().group();
    return op.has_all_reduce() ? op.all_reduce().group() : -1;
  }

  void After(int i, int earlier) {
    all_.push_back({Start(i), Start(earlier), op(earlier).module()});
  }

  const std::vector<Item>& items_;
  std::vector<Constraint> all_;
};

}  // namespace

std::vector<ReferenceOp> ReferenceSchedule(const pb::Plan& plan, const std::vector<int>& steps) {
  const std::vector<Item> items = Unroll(plan, steps);
  const std::vector<int64_t> time = Constraints(items).Solve();
  std::vector<ReferenceOp> result;
  for (int i = 0; i < static_cast<int>(items.size()); ++i) {
    const pb::Op& op = *items[i].op;
    result.push_back({time[HostTurn(i)] + op.unit(), time[Start(i)], time[Start(i)] + op.module()});
  }
  return result;
}

}  // namespace foreshard::sim
