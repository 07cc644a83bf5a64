// Two reports of one plan, the second changed in one way: the join finds that and nothing else.
#include "tools/report_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/tools/join_fixture.h"

namespace foreshard {
namespace {

using Rows = google::protobuf::RepeatedPtrField<pb::CategoryBytes>;

// Position of the first op that has a row of the category.
int Find(const pb::Timeline& timeline, const Rows& (pb::TimelineOp::*rows)() const,
         pb::Category category, int from = 0) {
  for (int i = from; i < timeline.ops_size(); ++i) {
    for (const pb::CategoryBytes& row : (timeline.ops(i).*rows)()) {
      if (row.category() == category) return i;
    }
  }
  ADD_FAILURE() << "no op with category " << category;
  return 0;
}

pb::CategoryBytes& RowOf(Rows* rows, pb::Category category) {
  for (pb::CategoryBytes& row : *rows) {
    if (row.category() == category) return row;
  }
  ADD_FAILURE() << "no row of category " << category;
  return *rows->Add();
}

TEST(ReportJoin, AReportEqualsItself) {
  const pb::Report a = Predicted();
  const ReportJoin join = Join(a, a, With("peak=0,time=0%"));
  EXPECT_TRUE(join.within);
  EXPECT_THAT(join.programs, testing::ElementsAre("first", "steady"));
  EXPECT_EQ(join.memory.ops, a.timeline().ops_size());
  EXPECT_EQ(join.memory.equal, join.memory.ops);
  EXPECT_FALSE(join.memory.first.has_value());
  EXPECT_TRUE(join.time.ops.empty());
  // The whole; peak, managed peak and end of each phase; peak and end of the ranks, which are
  // alike.
  EXPECT_EQ(Of(join, "peak").compared, 1 + 3 * a.phases_size() + 2);
  for (const Verdict& verdict : join.verdicts) {
    EXPECT_TRUE(verdict.judged);
    EXPECT_GT(verdict.compared, 0) << verdict.tolerance;
    EXPECT_EQ(verdict.beyond, 0) << verdict.tolerance;
  }
}

TEST(ReportJoin, WhateverAReportSaysItEqualsItself) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    pb::Report report = Predicted();
    pb::Timeline& timeline = *report.mutable_timeline();
    for (int change = 0; change < 5; ++change) {
      pb::TimelineOp& op = *timeline.mutable_ops(below(timeline.ops_size()));
      Rows* const rows[] = {op.mutable_allocated(), op.mutable_settled(), op.mutable_freed(),
                            timeline.mutable_resident()};
      pb::CategoryBytes& row = *rows[below(4)]->Add();
      row.set_category(static_cast<pb::Category>(below(pb::Category_MAX + 1)));
      row.set_bytes(below(1000) - 500);
      op.set_start_ps(below(1000));
      op.set_end_ps(1000 + below(1000));
      op.set_kernel(below(2) == 0 ? "" : "other");
      report.mutable_phases(below(report.phases_size()))->set_peak_bytes(below(1000));
    }
    const ReportJoin join = Join(report, report, With("peak=0,time=0%"));
    EXPECT_TRUE(join.within) << seed;
    EXPECT_EQ(join.memory.equal, join.memory.ops) << seed;
    EXPECT_EQ(join.memory.unequal_changes, 0) << seed;
  }
}

TEST(ReportJoin, ABufferOneElementShortShowsWhereItIsAllocatedAndUntilItIsFreed) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  const int begin = Find(a.timeline(), &pb::TimelineOp::allocated, pb::ACTIVATION);
  const int end = Find(a.timeline(), &pb::TimelineOp::freed, pb::ACTIVATION, begin);
  pb::CategoryBytes& allocated =
      RowOf(b.mutable_timeline()->mutable_ops(begin)->mutable_allocated(), pb::ACTIVATION);
  allocated.set_bytes(allocated.bytes() - 4);
  pb::CategoryBytes& freed =
      RowOf(b.mutable_timeline()->mutable_ops(end)->mutable_freed(), pb::ACTIVATION);
  freed.set_bytes(freed.bytes() - 4);
  const ReportJoin join = Join(a, b);
  EXPECT_FALSE(join.within);
  // From the op that allocates to the one that frees, both included.
  EXPECT_EQ(join.memory.ops - join.memory.equal, end - begin + 1);
  EXPECT_EQ(join.memory.unequal_changes, 2);
  EXPECT_EQ(Of(join, "memory").beyond, end - begin + 1);
  ASSERT_TRUE(join.memory.first.has_value());
  const Parting& first = *join.memory.first;
  EXPECT_EQ(first.index, begin);
  EXPECT_EQ(first.moment, "allocated");
  EXPECT_EQ(first.op.kind(), "compute");
  EXPECT_EQ(first.op.kernel(), "block");
  EXPECT_EQ(first.op.module(), "block");
  EXPECT_EQ(first.op.program(), "first");
  EXPECT_EQ(first.op.segment(), "step");
  ASSERT_EQ(first.running.size(), 1u);
  EXPECT_EQ(first.running[0].category, pb::ACTIVATION);
  EXPECT_EQ(first.running[0].b - first.running[0].a, -4);
  ASSERT_EQ(first.changes.size(), 1u);
  EXPECT_EQ(first.changes[0].a, 300);  // the block's output in the plan
  EXPECT_EQ(first.changes[0].b, 296);
  EXPECT_TRUE(Join(a, b, With("memory=4")).within);
  EXPECT_FALSE(Join(a, b, With("memory=3")).within);
}

TEST(ReportJoin, BytesOfAnotherCategoryDifferThoughTheirSumDoesNot) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  const int op = Find(a.timeline(), &pb::TimelineOp::allocated, pb::AG_OUTPUT);
  RowOf(b.mutable_timeline()->mutable_ops(op)->mutable_allocated(), pb::AG_OUTPUT)
      .set_category(pb::CAST);
  const ReportJoin join = Join(a, b);
  EXPECT_FALSE(join.within);
  ASSERT_TRUE(join.memory.first.has_value());
  EXPECT_EQ(join.memory.first->index, op);
  EXPECT_EQ(join.memory.unequal_changes, 1);
  ASSERT_EQ(join.memory.first->running.size(), 2u);
  EXPECT_EQ(join.memory.first->running[0].category, pb::CAST);
  EXPECT_EQ(join.memory.first->running[1].category, pb::AG_OUTPUT);
  EXPECT_EQ(join.memory.first->running[0].b - join.memory.first->running[0].a,
            join.memory.first->running[1].a - join.memory.first->running[1].b);
}

TEST(ReportJoin, AFreeOneOpLaterIsFound) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  const int op = Find(a.timeline(), &pb::TimelineOp::freed, pb::AG_OUTPUT);
  ASSERT_TRUE(a.timeline().ops(op + 1).freed().empty());
  b.mutable_timeline()->mutable_ops(op)->mutable_freed()->Swap(
      b.mutable_timeline()->mutable_ops(op + 1)->mutable_freed());
  const ReportJoin join = Join(a, b);
  EXPECT_FALSE(join.within);
  // The op that should free, and the next, which has more while it allocates.
  EXPECT_EQ(join.memory.ops - join.memory.equal, 2);
  EXPECT_EQ(join.memory.unequal_changes, 2);
  ASSERT_TRUE(join.memory.first.has_value());
  EXPECT_EQ(join.memory.first->index, op);
  EXPECT_EQ(join.memory.first->moment, "freed");
  ASSERT_EQ(join.memory.first->changes.size(), 1u);
  EXPECT_EQ(join.memory.first->changes[0].b, 0);
}

TEST(ReportJoin, WhatSettlesElsewhereIsFound) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  pb::CategoryBytes& from = *b.mutable_timeline()->mutable_ops(3)->add_settled();
  from.set_category(pb::SHARDED_PARAM);
  from.set_bytes(-8);
  pb::CategoryBytes& to = *b.mutable_timeline()->mutable_ops(3)->add_settled();
  to.set_category(pb::TEMP);
  to.set_bytes(8);
  const ReportJoin join = Join(a, b);
  ASSERT_TRUE(join.memory.first.has_value());
  EXPECT_EQ(join.memory.first->index, 3);
  EXPECT_EQ(join.memory.first->moment, "settled");
  EXPECT_EQ(join.memory.first->running.size(), 2u);
}

TEST(ReportJoin, WhatIsResidentIsComparedBeforeTheFirstOp) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  pb::CategoryBytes& row = RowOf(b.mutable_timeline()->mutable_resident(), pb::INPUT);
  row.set_bytes(row.bytes() + 1);
  const ReportJoin join = Join(a, b);
  EXPECT_EQ(join.memory.equal, 0);
  EXPECT_EQ(join.memory.unequal_changes, 0);
  ASSERT_TRUE(join.memory.first.has_value());
  EXPECT_EQ(join.memory.first->index, -1);
  EXPECT_EQ(join.memory.first->moment, "resident");
}

TEST(ReportJoin, PeaksAreHeldToTheirToleranceInEveryCategory) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  pb::PhaseMemory& phase = *b.mutable_phases(1);
  // 10 bytes from one category to another: the total stays.
  ASSERT_GE(phase.peak_by_category_size(), 2);
  phase.mutable_peak_by_category(0)->set_bytes(phase.peak_by_category(0).bytes() + 10);
  phase.mutable_peak_by_category(1)->set_bytes(phase.peak_by_category(1).bytes() - 10);
  const ReportJoin join = Join(a, b);
  EXPECT_FALSE(join.within);
  EXPECT_EQ(Of(join, "peak").beyond, 1);
  EXPECT_EQ(Of(join, "memory").beyond, 0);
  EXPECT_TRUE(Join(a, b, With("peak=10")).within);
  EXPECT_FALSE(Join(a, b, With("peak=9")).within);
}

TEST(ReportJoin, APeakAtAnotherOpIsAnotherPlace) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  pb::OpRef& at = *b.mutable_phases(0)->mutable_peak_at();
  at.set_op(at.op() + 1);
  const ReportJoin join = Join(a, b);
  EXPECT_FALSE(join.within);
  EXPECT_EQ(Of(join, "places").beyond, 1);
  EXPECT_EQ(Of(join, "peak").beyond, 0);
  EXPECT_TRUE(Join(a, b, With("places=no")).within);
}

TEST(ReportJoin, AMomentThatOneReportLacksIsBeyondAnyTolerance) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  b.mutable_phases()->RemoveLast();
  EXPECT_EQ(Of(Join(a, b, With("peak=100%,places=no")), "peak").beyond, 3);
  EXPECT_EQ(Of(Join(b, a, With("peak=100%,places=no")), "peak").beyond, 3);
}

TEST(ReportJoin, RanksThatAreGroupedOtherwiseDiffer) {
  const pb::Report a = Predicted();
  ASSERT_EQ(a.ranks_size(), 1);
  ASSERT_EQ(a.ranks(0).ranks(), 2);
  pb::Report b = a;
  b.mutable_ranks(0)->set_ranks(1);
  *b.add_ranks() = b.ranks(0);
  b.mutable_ranks(1)->set_rank(1);
  // Peak and end of "rank 0 of 2 alike", "rank 0" and "rank 1", each in one report only.
  EXPECT_EQ(Of(Join(a, b), "peak").beyond, 6);
}

TEST(ReportJoin, TimesAreSummedByKindAndStreamOfTheSteadyStep) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  for (pb::TimelineOp& op : *b.mutable_timeline()->mutable_ops()) op.set_end_ps(op.end_ps() * 2);
  const ReportJoin join = Join(a, b);
  EXPECT_EQ(join.time.program, "steady");
  EXPECT_EQ(join.time.step.a_ps, a.timing().step_ps());
  int64_t by_kind = 0;
  int64_t by_stream = 0;
  for (const TimePair& row : join.time.kinds) by_kind += row.a_ps;
  for (const TimePair& row : join.time.streams) by_stream += row.a_ps;
  EXPECT_EQ(by_kind, by_stream);
  EXPECT_EQ(join.time.streams[0].name, "compute");
  EXPECT_EQ(join.time.streams[0].a_ps, a.timing().compute_busy_ps());
  EXPECT_EQ(join.time.ops.size(), 10u);
  for (size_t i = 1; i < join.time.ops.size(); ++i) {
    const auto apart = [&](size_t k) { return join.time.ops[k].b_ps - join.time.ops[k].a_ps; };
    EXPECT_GE(apart(i - 1), apart(i));
  }
  EXPECT_TRUE(join.within) << "times are not judged unless asked for";
  EXPECT_FALSE(Of(join, "time").judged);
}

TEST(ReportJoin, TimeBeyondItsToleranceIsARegression) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  b.mutable_timing()->set_step_ps(2 * a.timing().step_ps());
  EXPECT_FALSE(Join(a, b, With("time=50%")).within);
  EXPECT_TRUE(Join(a, b, With("time=100%")).within);
  EXPECT_TRUE(Join(a, b, With("time=2x")).within);
  EXPECT_FALSE(Join(a, b, With("time=1.9x")).within);
  const ReportJoin join = Join(a, b, With("time=10%"));
  EXPECT_EQ(Of(join, "time").beyond, 1);
  EXPECT_FALSE(join.time.step.within);
}

TEST(ReportJoin, AKindThatHardlyTakesTimeIsNotJudged) {
  pb::Report a = Predicted();
  pb::TimelineOp& op = *a.mutable_timeline()->mutable_ops(a.timeline().ops_size() - 1);
  const int stream = 0;
  op.set_stream(stream);
  op.set_kind("tiny");
  op.set_start_ps(0);
  op.set_end_ps(1);
  pb::Report b = a;
  b.mutable_timeline()->mutable_ops(a.timeline().ops_size() - 1)->set_end_ps(5);
  EXPECT_TRUE(Join(a, b, With("time=10%")).within);
  // As long as the whole step: judged.
  b.mutable_timeline()->mutable_ops(a.timeline().ops_size() - 1)->set_end_ps(a.timing().step_ps());
  EXPECT_FALSE(Join(a, b, With("time=10%")).within);
}

}  // namespace
}  // namespace foreshard
