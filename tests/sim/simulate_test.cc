// A whole step worked out by hand: times, bytes and every number of the report.
//
// Times of the two-unit plan. Host 10 ps a kernel, 20 a collective; a copy takes its bytes + 5, a
// ring 110 + half its bytes. Columns: issued, start, end on the device; `c` compute, `i` copy-in,
// `g` gather, `r` reduce.
//
//   first                           issued   start     end
//    0 i stream wait                    10      10      10
//    1 i cast root   40 * (4 + 2) + 5   20      20     265
//    2 i copy in     2 * 80 + 5         30     265     430
//    3 g gather      110 + 160 / 2      50     430     620
//    4 c copy out    2 * 160 + 5        60     620     945
//    5 i cast block  100 * 6 + 5        70     430    1035
//    6 i copy in     2 * 200 + 5        80    1035    1440
//    7 g gather      110 + 400 / 2     100    1440    1750
//    8 c copy out    2 * 400 + 5       110    1750    2555
//    9 c block       1000 + 5          120    2555    3560
//   11 c head        700 bytes + 5     130    3560    4265
//   12 c head back   800 + 5           140    4265    5070
//   13 i cast block, the host waits until 9 ends at 3560:
//                                     3570    3570    4175
//   14 i copy in                      3580    4175    4580
//   15 g gather                       3600    4580    4890
//   16 c copy out                     3610    5070    5875
//   17 c block back  2000 + 5         3620    5875    7880
//   19 r copy in     200 * (2 + 4) + 5
//                                     3630    7880    9085
//   20 r scatter     110 + 800 / 2    3650    9085    9595
//   21 r finalize    only a name      3650    9595    9595
//   22 r copy in     80 * 6 + 5       3660    9595   10080
//   23 r scatter     110 + 320 / 2    3680   10080   10350
//   25 c stream wait                  3690   10350   10350
//      c optimizer init 1120 + 5      3700   10350   11475
//      c update 560 + 2 * 1680 + 5    3710   11475   15400
//
// Every steady step begins with a wait of the copy-in stream for compute, so it repeats the above
// from op 1 on without the host's 20 ps at the start and without the init's 1125 ps:
// 15400 - 20 - 1125 = 14255 ps.
#include "sim/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/compile.h"
#include "sim/cost/roofline.h"
#include "tests/testing/parse.h"
#include "tests/testing/schedule_recorder.h"
#include "tests/testing/two_unit_plan.h"

namespace foreshard {
namespace {

using sim::kRoundCluster;
using sim::kTwoUnitPlan;

pb::Report Simulated() {
  auto report =
      Simulate(ParseOrDie<pb::Plan>(kTwoUnitPlan), ParseOrDie<pb::Cluster>(kRoundCluster));
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.value();
}

const pb::PhaseMemory& PhaseOf(const pb::Report& report, const std::string& program,
                               pb::Phase phase) {
  for (const pb::PhaseMemory& memory : report.phases()) {
    if (memory.program() == program && memory.phase() == phase) return memory;
  }
  ADD_FAILURE() << "no phase " << phase << " in " << program;
  return report.phases(0);
}

TEST(Simulate, TwoUnitPlanRunsToTheScheduleWorkedOutByHand) {
  const auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  const auto cluster = ParseOrDie<pb::Cluster>(kRoundCluster);
  const sim::RooflineModel costs(plan, cluster);
  const run::Program program = sim::Compile(plan, costs).value();
  const sim::RecordedRun run = sim::RunRecorded(program, {0, 1, 1});
  EXPECT_TRUE(run.verdict.ok()) << run.verdict.message();
  struct Expected {
    int op;
    int64_t issued, started, ended;
  };
  const Expected expected[] = {
      {0, 10, 10, 10},          {1, 20, 20, 265},         {2, 30, 265, 430},
      {3, 50, 430, 620},        {4, 60, 620, 945},        {5, 70, 430, 1035},
      {6, 80, 1035, 1440},      {7, 100, 1440, 1750},     {8, 110, 1750, 2555},
      {9, 120, 2555, 3560},     {11, 130, 3560, 4265},    {12, 140, 4265, 5070},
      {13, 3570, 3570, 4175},   {14, 3580, 4175, 4580},   {15, 3600, 4580, 4890},
      {16, 3610, 5070, 5875},   {17, 3620, 5875, 7880},   {19, 3630, 7880, 9085},
      {20, 3650, 9085, 9595},   {21, 3650, 9595, 9595},   {22, 3660, 9595, 10080},
      {23, 3680, 10080, 10350}, {25, 3690, 10350, 10350}, {28, 3700, 10350, 11475},
      {29, 3710, 11475, 15400},
  };
  for (const Expected& e : expected) {
    EXPECT_EQ(run.schedule.ops[e.op].issued, e.issued) << "op " << e.op;
    EXPECT_EQ(run.schedule.ops[e.op].started, e.started) << "op " << e.op;
    EXPECT_EQ(run.schedule.ops[e.op].ended, e.ended) << "op " << e.op;
  }
  EXPECT_THAT(run.schedule.step_ends,
              testing::ElementsAre(15400, 15400 + 14255, 15400 + 2 * 14255));
}

TEST(Simulate, TimingOfASteadyStep) {
  const pb::Report report = Simulated();
  const pb::Timing& timing = report.timing();
  EXPECT_EQ(timing.step_ps(), 14255);
  // Copies out 325 + 805 + 805, block 1005, head 705, backward 805 + 2005, update 3925.
  EXPECT_EQ(timing.compute_busy_ps(), 10380);
  // Gathers 190 + 310 + 310, scatters 510 + 270.
  EXPECT_EQ(timing.communication_busy_ps(), 1590);
  // The backward gather hides behind the head's backward; nothing else is hidden.
  EXPECT_EQ(timing.exposed_communication_ps(), 1590 - 310);
  // 18 kernels and 5 collectives; the two finalize ops launch nothing.
  EXPECT_EQ(timing.host_busy_ps(), 18 * 10 + 5 * 20);
  // On the compute stream the update ends at 0, the head at 4265 - 20, the wait for the reduce
  // stream at 10350 - 20.
  ASSERT_EQ(timing.phases_size(), 3);
  EXPECT_EQ(timing.phases(0).phase(), pb::FORWARD);
  EXPECT_EQ(timing.phases(0).duration_ps(), 4245);
  EXPECT_EQ(timing.phases(1).phase(), pb::BACKWARD);
  EXPECT_EQ(timing.phases(1).duration_ps(), 6085);
  EXPECT_EQ(timing.phases(2).phase(), pb::OPTIMIZER);
  EXPECT_EQ(timing.phases(2).duration_ps(), 3925);
  EXPECT_FALSE(timing.calibrated());
}

TEST(Simulate, ThroughputAndUtilisationFollowFromTheStep) {
  const pb::Report report = Simulated();
  const pb::Timing& timing = report.timing();
  // 2 sequences of 3 tokens in 14255 ps; 4300 FLOPs at 1e12 FLOP/s would take 4300 ps.
  EXPECT_DOUBLE_EQ(timing.tokens_per_second_per_gpu(), 6 / 14255e-12);
  EXPECT_EQ(timing.model_flops_per_step(), 4300);
  EXPECT_EQ(timing.peak_flops_per_second(), 1e12);
  EXPECT_DOUBLE_EQ(timing.mfu(), 4300.0 / 14255.0);
}

TEST(Simulate, CollectivesOfASteadyStep) {
  const pb::Report report = Simulated();
  ASSERT_EQ(report.collectives_size(), 3);
  const pb::CollectiveTotal& forward = report.collectives(0);
  EXPECT_EQ(forward.kind(), "all_gather");
  EXPECT_EQ(forward.phase(), pb::FORWARD);
  EXPECT_EQ(forward.count(), 2);
  EXPECT_EQ(forward.input_bytes(), (40 + 100) * 2);
  EXPECT_EQ(forward.output_bytes(), (80 + 200) * 2);
  EXPECT_EQ(forward.wire_bytes(), (80 + 200) * 2 / 2);  // (n - 1) / n of the output
  EXPECT_EQ(report.collectives(1).phase(), pb::BACKWARD);
  EXPECT_EQ(report.collectives(1).wire_bytes(), 200);
  const pb::CollectiveTotal& reduce = report.collectives(2);
  EXPECT_EQ(reduce.kind(), "reduce_scatter");
  EXPECT_EQ(reduce.count(), 2);
  EXPECT_EQ(reduce.input_bytes(), (80 + 200) * 4);
  EXPECT_EQ(reduce.output_bytes(), (40 + 100) * 4);
  EXPECT_EQ(reduce.wire_bytes(), (80 + 200) * 4 / 2);
}

// Gathers of the root take 190 ps and of the block 310, twice; reductions 270 and 510. Only the
// backward gather of the block is hidden, by the head's backward.
TEST(Simulate, CollectivesOfEachUnit) {
  const pb::Report report = Simulated();
  ASSERT_EQ(report.units_size(), 2);
  const pb::UnitReport& root = report.units(0);
  EXPECT_EQ(root.name(), "<root>");
  EXPECT_EQ(root.parameters(), 80);
  EXPECT_EQ(root.shard_bytes(), 40 * 4);
  EXPECT_EQ(root.gather_bytes(), 80 * 2);
  EXPECT_EQ(root.reduce_bytes(), 80 * 4);
  EXPECT_EQ(root.gathers(), 1);
  EXPECT_EQ(root.reductions(), 1);
  EXPECT_EQ(root.gather_ps(), 190);
  EXPECT_EQ(root.exposed_gather_ps(), 190);
  EXPECT_EQ(root.reduce_ps(), 270);
  EXPECT_EQ(root.exposed_reduce_ps(), 270);
  const pb::UnitReport& block = report.units(1);
  EXPECT_EQ(block.name(), "block");
  EXPECT_EQ(block.parameters(), 200);
  EXPECT_EQ(block.shard_bytes(), 100 * 4);
  EXPECT_EQ(block.gather_bytes(), 200 * 2);
  EXPECT_EQ(block.reduce_bytes(), 200 * 4);
  EXPECT_EQ(block.gathers(), 2);
  EXPECT_EQ(block.reductions(), 1);
  EXPECT_EQ(block.gather_ps(), 2 * 310);
  EXPECT_EQ(block.exposed_gather_ps(), 310);
  EXPECT_EQ(block.reduce_ps(), 510);
  EXPECT_EQ(block.exposed_reduce_ps(), 510);
}

// The host's clock in a steady step, from the end E of the step before on the device: op 9 ends at
// E + 3540 (3560 less the 20 that the first step waits), which frees the host to issue ops 13 to 25
// and the update in 50 + 60 + 10 + 10 = 140 ps until E + 3680. The next step begins there; its root
// is allocated 50 ps later with op 4 and freed with op 27 at E' + 3670, E' = E + 14255:
// 14255 + 3670 - 3680 - 50. The block lives while ops 8 and 9, 16 and 17 are issued.
TEST(Simulate, UnshardedParametersLiveByTheClockOfTheHost) {
  const pb::Report report = Simulated();
  EXPECT_EQ(report.units(0).resident_ps(), 14195);
  EXPECT_EQ(report.units(1).resident_ps(), 4 * 10);
}

// Bytes after each op in host order; shards 160 + 400 and inputs 64 are resident: 624.
//   forward of `first`: 1: 704; 2: 864, 784; 4: 944, 784; 5: 984; 6: 1384, 1184; 8: 1584, 1184;
//     9: 1484; 10: 1084; 11: 1584, which only equals the peak at 8.
//   backward: 12: 1884, 2044, 1544; 13: 1744; 14: 2144, 1944; 16: 2344, 1944; 17: 2344, 1744;
//     18: 1344; 19: 2144, 1744; 20: 2144; 22: 2464, 2304; 23: 2464; 26: 1344; 27: 1184.
//   optimizer: state 1120: 2304. zero_grad: 560 less: 1744.
TEST(Simulate, MemoryOfEachPhaseOfTheFirstStep) {
  const pb::Report report = Simulated();
  const pb::PhaseMemory& forward = PhaseOf(report, "first", pb::FORWARD);
  EXPECT_EQ(forward.start_bytes(), 624);
  EXPECT_EQ(forward.peak_bytes(), 1584);
  EXPECT_EQ(forward.peak_at().op(), 8);
  EXPECT_EQ(forward.peak_at().kind(), "copy_out");
  EXPECT_EQ(forward.peak_at().unit(), "block");
  EXPECT_EQ(forward.end_bytes(), 1584);
  EXPECT_EQ(forward.managed_peak_bytes(), 1584 - 64);
  const pb::PhaseMemory& backward = PhaseOf(report, "first", pb::BACKWARD);
  EXPECT_EQ(backward.start_bytes(), 1584);
  EXPECT_EQ(backward.peak_bytes(), 2464);
  EXPECT_EQ(backward.peak_at().op(), 22);
  EXPECT_EQ(backward.managed_peak_bytes(), 2400);
  EXPECT_EQ(backward.end_bytes(), 1184);
  const pb::PhaseMemory& optimizer = PhaseOf(report, "first", pb::OPTIMIZER);
  EXPECT_EQ(optimizer.peak_bytes(), 2304);
  EXPECT_EQ(optimizer.peak_at().segment(), "init");
  const pb::PhaseMemory& zero = PhaseOf(report, "first", pb::ZERO_GRAD);
  EXPECT_EQ(zero.peak_bytes(), 2304);
  EXPECT_FALSE(zero.has_peak_at()) << "the phase starts at its peak";
  EXPECT_EQ(zero.end_bytes(), 1744);
}

TEST(Simulate, SteadyMemoryHasTheOptimizerStateOnTop) {
  const pb::Report report = Simulated();
  EXPECT_EQ(report.phases_size(), 8);
  const pb::PhaseMemory& forward = PhaseOf(report, "steady", pb::FORWARD);
  EXPECT_EQ(forward.start_bytes(), 624 + 1120);
  EXPECT_EQ(forward.peak_bytes(), 1584 + 1120);
  const pb::PhaseMemory& backward = PhaseOf(report, "steady", pb::BACKWARD);
  EXPECT_EQ(backward.peak_bytes(), 2464 + 1120);
  EXPECT_EQ(backward.managed_peak_bytes(), 2400 + 1120);
  EXPECT_EQ(PhaseOf(report, "steady", pb::ZERO_GRAD).end_bytes(), 624 + 1120);
}

TEST(Simulate, PeakIsSplitIntoALedgerThatSumsToIt) {
  const pb::Report report = Simulated();
  EXPECT_EQ(report.peak().bytes(), 2464 + 1120);
  EXPECT_EQ(report.peak().at().program(), "steady");
  EXPECT_EQ(report.peak().at().op(), 22);
  std::vector<std::pair<std::string, int64_t>> ledger;
  for (const pb::LedgerTerm& term : report.peak().ledger()) {
    ledger.emplace_back(term.name(), term.bytes());
  }
  using testing::Pair;
  // Root gradient 160, reduce inputs 800 + 320.
  EXPECT_THAT(ledger,
              testing::ElementsAre(Pair("sharded parameters", 560), Pair("gradients", 400),
                                   Pair("optimizer state", 1120), Pair("gathered parameters", 160),
                                   Pair("gradient and reduce buffers", 160 + 1120),
                                   Pair("inputs and model buffers", 64)));
}

TEST(Simulate, LiveBuffersAtThePeakAreGroupedLargestFirst) {
  const pb::Report report = Simulated();
  int64_t total = 0;
  int64_t last = INT64_MAX;
  for (const pb::LiveGroup& group : report.peak().live()) {
    total += group.bytes();
    EXPECT_LE(group.bytes(), last);
    last = group.bytes();
  }
  EXPECT_EQ(total, report.peak().bytes());
  EXPECT_EQ(report.peak().live(0).bytes(), 800);
  EXPECT_EQ(report.peak().live(0).owner(), "block");
}

TEST(Simulate, FitComparesThePeakWithWhatTheReserveLeaves) {
  const pb::Fit fit = Simulated().fit();
  EXPECT_TRUE(fit.fits());
  EXPECT_EQ(fit.headroom_bytes(), 10000 - 1000 - 3584);
  auto small = ParseOrDie<pb::Cluster>(kRoundCluster);
  small.mutable_gpu()->set_memory_bytes(4583);
  const pb::Report report = Simulate(ParseOrDie<pb::Plan>(kTwoUnitPlan), small).value();
  EXPECT_FALSE(report.fit().fits());
  EXPECT_EQ(report.fit().headroom_bytes(), -1);
}

TEST(Simulate, SetupRepeatsThePlanAndTheCluster) {
  const pb::Setup setup = Simulated().setup();
  EXPECT_EQ(setup.model(), "two");
  EXPECT_EQ(setup.cluster(), "round");
  EXPECT_EQ(setup.gpu(), "round-gpu");
  EXPECT_THAT(setup.ranks_per_node(), testing::ElementsAre(2));
  EXPECT_EQ(setup.micro_batch(), 2);
  EXPECT_EQ(setup.seq(), 3);
  EXPECT_EQ(setup.units(), 2);
  EXPECT_EQ(setup.wrap_policy(), "blocks");
  EXPECT_EQ(setup.reshard_after_forward(), "") << "not asked for";
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  plan.mutable_decisions()->set_reshard_after_forward("false");
  const auto asked = Simulate(plan, ParseOrDie<pb::Cluster>(kRoundCluster));
  EXPECT_EQ(asked.value().setup().reshard_after_forward(), "false");
}

TEST(Simulate, TheLastNodeMayBeUneven) {
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  plan.mutable_mesh()->set_world_size(12);
  const auto report = Simulate(plan, ParseOrDie<pb::Cluster>(kRoundCluster));
  EXPECT_THAT(report.value().setup().ranks_per_node(), testing::ElementsAre(8, 4));
}

TEST(Simulate, TheSameInputGivesTheSameBytes) {
  EXPECT_EQ(Simulated().SerializeAsString(), Simulated().SerializeAsString());
}

TEST(Simulate, MicroBatchesOfRepeatedSegmentsCount) {
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  // Gradients of the first repetition are freed before the second: an update in between.
  plan.mutable_programs(1)->clear_uses();
  for (int i = 0; i < 3; ++i) {
    plan.mutable_programs(1)->add_uses()->set_segment(0);
    plan.mutable_programs(1)->add_uses()->set_segment(2);
  }
  for (pb::SegmentUse& use : *plan.mutable_programs(1)->mutable_uses()) use.set_repeat(1);
  const pb::Report report = Simulate(plan, ParseOrDie<pb::Cluster>(kRoundCluster)).value();
  EXPECT_EQ(report.timing().step_ps(), 3 * 14255);
  EXPECT_EQ(report.timing().model_flops_per_step(), 3 * 4300);
  EXPECT_EQ(report.collectives(0).count(), 6);
}

TEST(Simulate, AClusterThatDoesNotKnowItsHostIsRefusedForPlansThatUseIt) {
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  plan.mutable_buffers(0)->set_host(true);
  auto cluster = ParseOrDie<pb::Cluster>(kRoundCluster);
  cluster.mutable_host()->set_memory_bytes_per_second(1e12);
  const auto report = Simulate(plan, cluster);
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(),
              testing::HasSubstr("cluster round does not say host.copy_bytes_per_second"));
  cluster.mutable_host()->set_copy_bytes_per_second(1e12);
  cluster.mutable_host()->clear_memory_bytes_per_second();
  EXPECT_THAT(Simulate(plan, cluster).status().message(),
              testing::HasSubstr("does not say host.memory_bytes_per_second"));
  cluster.mutable_host()->set_memory_bytes_per_second(1e12);
  EXPECT_TRUE(Simulate(plan, cluster).ok());
}

TEST(Simulate, AClusterSmallerThanTheWorldIsRefused) {
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  plan.mutable_mesh()->set_world_size(16);
  auto cluster = ParseOrDie<pb::Cluster>(kRoundCluster);
  cluster.set_nodes(1);
  const Status status = Simulate(plan, cluster).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("world 16 needs 2 nodes of 8, cluster round has 1"));
}

TEST(Simulate, HardwareThatIsNoneIsRefused) {
  auto cluster = ParseOrDie<pb::Cluster>(kRoundCluster);
  cluster.mutable_gpu()->set_memory_bytes_per_second(0);
  const Status status = Simulate(ParseOrDie<pb::Plan>(kTwoUnitPlan), cluster).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), testing::HasSubstr("gpu.memory_bytes_per_second is 0"));
}

TEST(Simulate, HardwareTooSlowForTheClockIsRefused) {
  auto cluster = ParseOrDie<pb::Cluster>(kRoundCluster);
  cluster.mutable_gpu()->set_memory_bytes_per_second(1e-9);
  const Status status = Simulate(ParseOrDie<pb::Plan>(kTwoUnitPlan), cluster).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("op 1 (cast_shard) would take"));
}

}  // namespace
}  // namespace foreshard
