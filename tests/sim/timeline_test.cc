// The ops that a simulated report lists add up to the figures beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/simulate.h"
#include "tests/testing/parse.h"
#include "tests/testing/two_unit_plan.h"

namespace foreshard {
namespace {

pb::Plan Plan() {
  auto plan = ParseOrDie<pb::Plan>(sim::kTwoUnitPlan);
  // Rank 1 has 8 bytes less of the root's shard.
  pb::RankBytes& fewer = *plan.mutable_buffers(0)->add_others();
  fewer.set_rank(1);
  fewer.set_bytes(plan.buffers(0).bytes() - 8);
  return plan;
}

pb::Report Predict(int rank) {
  return Simulate(Plan(), ParseOrDie<pb::Cluster>(sim::kRoundCluster),
                  {.rank = rank, .has_timeline = true})
      .value();
}

int64_t Sum(const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& rows) {
  int64_t sum = 0;
  for (const pb::CategoryBytes& row : rows) sum += row.bytes();
  return sum;
}

TEST(SimulatedTimeline, ListsTheFirstAndOneSteadyStep) {
  const pb::Report report = Predict(0);
  std::map<int, int> ops;
  for (const pb::TimelineOp& op : report.timeline().ops()) ++ops[op.program()];
  const pb::Plan plan = Plan();
  ASSERT_EQ(ops.size(), 2u);
  for (int program = 0; program < 2; ++program) {
    int expected = 0;
    for (const pb::SegmentUse& use : plan.programs(program).uses()) {
      expected += use.repeat() * plan.segments(use.segment()).ops_size();
    }
    EXPECT_EQ(ops[program], expected);
  }
}

TEST(SimulatedTimeline, ChangesAddUpToThePeaksAndEndsOfPhases) {
  for (const int rank : {0, 1}) {
    const pb::Report report = Predict(rank);
    EXPECT_EQ(report.setup().rank(), rank);
    EXPECT_EQ(report.timeline().rank(), rank);
    int64_t alive = Sum(report.timeline().resident());
    std::map<std::pair<std::string, int>, int64_t> peaks;
    std::map<std::pair<std::string, int>, int64_t> ends;
    for (const pb::TimelineOp& op : report.timeline().ops()) {
      const std::pair key(report.timeline().programs(op.program()), static_cast<int>(op.phase()));
      int64_t& peak = peaks.try_emplace(key, alive).first->second;
      alive += Sum(op.allocated());
      peak = std::max(peak, alive);
      EXPECT_EQ(Sum(op.settled()), 0);
      alive -= Sum(op.freed());
      ends[key] = alive;
    }
    for (const pb::PhaseMemory& phase : report.phases()) {
      const std::pair key(phase.program(), static_cast<int>(phase.phase()));
      EXPECT_EQ(peaks[key], phase.peak_bytes()) << phase.program() << phase.phase();
      EXPECT_EQ(ends[key], phase.end_bytes()) << phase.program() << phase.phase();
    }
  }
}

TEST(SimulatedTimeline, ARankThatHoldsLessShowsLess) {
  const pb::Report whole = Predict(0);
  const pb::Report less = Predict(1);
  EXPECT_EQ(whole.peak().bytes() - less.peak().bytes(), 8);
  EXPECT_EQ(Sum(whole.timeline().resident()) - Sum(less.timeline().resident()), 8);
  ASSERT_EQ(less.ranks_size(), 2);
  EXPECT_EQ(less.ranks(1).peak_bytes(), less.peak().bytes());
}

TEST(SimulatedTimeline, DurationsOnTheComputeStreamAreItsBusyTime) {
  const pb::Report report = Predict(0);
  int64_t busy = 0;
  for (const pb::TimelineOp& op : report.timeline().ops()) {
    if (op.program() == 1 && op.stream() == 0) busy += op.end_ps() - op.start_ps();
  }
  EXPECT_EQ(busy, report.timing().compute_busy_ps());
}

TEST(SimulatedTimeline, ReportsAreTheSameWithAndWithoutOne) {
  pb::Report report = Predict(0);
  report.clear_timeline();
  const pb::Report plain = Simulate(Plan(), ParseOrDie<pb::Cluster>(sim::kRoundCluster)).value();
  EXPECT_EQ(report.SerializeAsString(), plain.SerializeAsString());
}

TEST(Simulate, ARankThatThePlanLacksIsRefused) {
  for (const int rank : {-1, 2}) {
    const Status status =
        Simulate(Plan(), ParseOrDie<pb::Cluster>(sim::kRoundCluster), {.rank = rank}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace foreshard
