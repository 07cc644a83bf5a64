// The engine against the naive reference on many random plans: identical times.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/testing/reference_schedule.h"
#include "tests/testing/schedule_recorder.h"
#include "tests/testing/tiny_plan.h"

namespace foreshard::sim {
namespace {

class RandomPlan {
 public:
  explicit RandomPlan(unsigned seed) : random_(seed) {}

  TinyPlan Make() {
    const int streams = Below(4) + 1;
    const int groups = Below(3);
    TinyPlan plan(streams, groups, kEvents);
    AddRecords(streams, plan);
    const int segments = Below(3) + 2;
    for (int s = 1; s < segments; ++s) {
      plan.BeginSegment();
      std::vector<int> on_stream;  // ops that others may wait for
      const int ops = Below(12);
      for (int i = 0; i < ops; ++i) {
        const TinyOp op = MakeOp(streams, groups, on_stream);
        plan.Add(op);
        if (op.stream >= 0) on_stream.push_back(i);
      }
    }
    for (int p = 0; p < 2; ++p) {
      std::vector<std::pair<int, int>> uses;
      if (p == 0) uses.emplace_back(0, kMostPast + 1);
      for (int u = Below(3); u >= 0; --u) uses.emplace_back(Below(segments), Below(3) + 1);
      plan.AddProgram(uses);
    }
    return plan;
  }

 private:
  static constexpr int kEvents = 2;
  static constexpr int kMostPast = 2;  // records that a wait looks past

  // So that whatever waits for a record finds one, the first segment makes some.
  void AddRecords(int streams, TinyPlan& plan) {
    for (int e = 0; e < kEvents; ++e) {
      plan.Add({.stream = Below(streams), .device = Below(8), .record = e});
    }
  }

  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  std::vector<int> Some(const std::vector<int>& from, int most) {
    std::vector<int> picked;
    if (from.empty()) return picked;
    for (int i = Below(most + 1); i > 0; --i) {
      picked.push_back(from[Below(static_cast<int>(from.size()))]);
    }
    return picked;
  }

  TinyOp MakeOp(int streams, int groups, const std::vector<int>& earlier) {
    TinyOp op;
    op.host_waits = Below(4) == 0 ? Some(earlier, 2) : std::vector<int>{};
    if (Below(4) == 0) op.event_waits.emplace_back(Below(kEvents), Below(kMostPast + 1));
    if (Below(3) == 0) {
      op.record = Below(kEvents);
      op.record_stream = Below(streams);
    }
    if (Below(6) == 0) {
      op.stream = -1;
      return op;
    }
    op.stream = Below(streams);
    op.host = Below(4);  // zero often: ties are where order matters
    op.device = Below(8);
    op.waits = Some(earlier, 3);
    const int kind = Below(4);
    if (kind == 0 && groups > 0) {
      op.group = Below(groups);
    } else if (kind == 1) {
      for (int i = Below(streams); i >= 0; --i) op.on.push_back(Below(streams));
    }
    return op;
  }

  std::mt19937 random_;
};

TEST(EngineProperty, TimesAreThoseOfTheReference) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const TinyPlan plan = RandomPlan(seed).Make();
    const std::vector<int> steps = {0, 1, 1};
    const std::vector<ReferenceOp> expected = ReferenceSchedule(plan.plan(), steps);
    const RecordedRun run = RunRecorded(plan.Compiled(), steps);
    ASSERT_TRUE(run.verdict.ok()) << "seed " << seed << ": " << run.verdict.message();
    ASSERT_EQ(run.schedule.ops.size(), expected.size()) << "seed " << seed;
    for (size_t i = 0; i < expected.size(); ++i) {
      const RecordedOp& actual = run.schedule.ops[i];
      ASSERT_EQ(actual.issued, expected[i].issued) << "seed " << seed << " op " << i;
      if (actual.started < 0) continue;  // no stream
      ASSERT_EQ(actual.started, expected[i].started) << "seed " << seed << " op " << i;
      ASSERT_EQ(actual.ended, expected[i].ended) << "seed " << seed << " op " << i;
    }
  }
}

}  // namespace
}  // namespace foreshard::sim
