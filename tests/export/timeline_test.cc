#include "tools/export/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "proto/base/file.h"
#include "proto/cluster.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"
#include "tests/export/trace_reader.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/parse.h"
#include "tests/testing/tree_model.h"
#include "tests/testing/two_unit_plan.h"
#include "tools/export/trace.h"

namespace foreshard {
namespace {

using testing::IsEmpty;

constexpr int kDrawnSteps = 3;  // first, steady, steady

// What the engine says of the drawn steps, by stream.
class Recorder final : public run::Listener {
 public:
  explicit Recorder(const pb::Plan& plan)
      : plan_(plan), spans(static_cast<size_t>(plan.streams_size())) {}

  void OpStarted(const run::OpInstance& op, SimTime at) override { begun_[op.sequence] = at; }
  void OpEnded(const run::OpInstance& op, SimTime at) override {
    const SimTime begin = begun_[op.sequence];
    if (op.step >= kDrawnSteps || begin == at) return;
    const int stream = plan_.segments(static_cast<int>(op.segment)).ops(op.position).stream();
    spans[static_cast<size_t>(stream)].emplace_back(begin.count(), at.count());
  }

 private:
  const pb::Plan& plan_;
  std::map<int64_t, SimTime> begun_;

 public:
  std::vector<std::vector<std::pair<int64_t, int64_t>>> spans;  // picoseconds
};

struct Traced {
  pb::Report report;
  std::string bytes;
  ReadTrace trace;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> spans;
};

Traced TraceOf(const pb::Plan& plan, const pb::Cluster& cluster) {
  Timeline timeline(plan);
  Recorder recorder(plan);
  run::Listener* const watchers[] = {&timeline, &recorder};
  Traced traced;
  traced.report = Simulate(plan, cluster, {.watchers = watchers}).value();
  traced.bytes = timeline.Take();
  traced.trace = Read(traced.bytes);
  traced.spans = recorder.spans;
  return traced;
}

// The cluster of round numbers, with nanoseconds where it has picoseconds.
pb::Cluster NanosecondCluster() {
  auto cluster = ParseOrDie<pb::Cluster>(sim::kRoundCluster);
  pb::Gpu& gpu = *cluster.mutable_gpu();
  gpu.set_bf16_flops_per_second(gpu.bf16_flops_per_second() / 1000);
  gpu.set_fp32_flops_per_second(gpu.fp32_flops_per_second() / 1000);
  gpu.set_memory_bytes_per_second(gpu.memory_bytes_per_second() / 1000);
  pb::Node& node = *cluster.mutable_node();
  node.set_link_bytes_per_second(node.link_bytes_per_second() / 1000);
  node.set_link_step_seconds(node.link_step_seconds() * 1000);
  pb::Host& host = *cluster.mutable_host();
  host.set_launch_seconds(host.launch_seconds() * 1000);
  host.set_collective_seconds(host.collective_seconds() * 1000);
  host.set_kernel_seconds(host.kernel_seconds() * 1000);
  host.set_collective_base_seconds(host.collective_base_seconds() * 1000);
  return cluster;
}

Traced TwoUnits() { return TraceOf(ParseOrDie<pb::Plan>(sim::kTwoUnitPlan), NanosecondCluster()); }

pb::Plan TreePlan() {
  PlanRequest request;
  request.world_size = 4;
  request.seq = 64;
  return PlanOf(TreeModel({.blocks = 4, .dim = 256, .vocab = 1000}), request);
}

Traced Tree() { return TraceOf(TreePlan(), LoadCluster("dgx-a100-80g").value()); }

TEST(Timeline, SlicesOfAStreamAreTheOpsThatTookTime) {
  const Traced traced = TwoUnits();
  EXPECT_THAT(traced.trace.problems, IsEmpty());
  const auto plan = ParseOrDie<pb::Plan>(sim::kTwoUnitPlan);
  for (int s = 0; s < plan.streams_size(); ++s) {
    std::vector<std::pair<int64_t, int64_t>> drawn;
    for (const TraceSlice& slice : traced.trace.Track("stream " + plan.streams(s).name()).slices) {
      drawn.emplace_back(slice.begin * 1000, slice.end * 1000);
    }
    EXPECT_EQ(drawn, traced.spans[static_cast<size_t>(s)]) << plan.streams(s).name();
  }
}

TEST(Timeline, RoundingDownMovesNothingByANanosecond) {
  const pb::Plan plan = TreePlan();
  const Traced traced = Tree();
  EXPECT_THAT(traced.trace.problems, IsEmpty());
  for (int s = 0; s < plan.streams_size(); ++s) {
    const auto& slices = traced.trace.Track("stream " + plan.streams(s).name()).slices;
    const auto& spans = traced.spans[static_cast<size_t>(s)];
    ASSERT_EQ(slices.size(), spans.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(slices[i].begin, spans[i].first / 1000);
      EXPECT_EQ(slices[i].end, spans[i].second / 1000);
    }
  }
}

TEST(Timeline, TheHighestCountIsThePeakOfTheReport) {
  for (const Traced& traced : {TwoUnits(), Tree()}) {
    int64_t peak = 0;
    for (const auto& [time, bytes] : traced.trace.Track("memory: total").counts) {
      peak = std::max(peak, bytes);
    }
    EXPECT_EQ(peak, traced.report.peak().bytes());
  }
}

TEST(Timeline, CategoriesSumToTheTotalWhenAStepHasEnded) {
  const Traced traced = Tree();
  int64_t sum = 0;
  for (const auto& [uuid, track] : traced.trace.tracks) {
    if (!track.is_counter || track.counts.empty() || track.name == "memory: total") continue;
    sum += track.counts.back().second;
    for (const auto& [time, bytes] : track.counts) EXPECT_GE(bytes, 0) << track.name;
  }
  EXPECT_EQ(sum, traced.trace.Track("memory: total").counts.back().second);
  EXPECT_EQ(sum, traced.report.phases().rbegin()->end_bytes());
}

TEST(Timeline, StepsFollowOneAnother) {
  const Traced traced = TwoUnits();
  const auto& steps = traced.trace.Track("steps").slices;
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].name, "first");
  EXPECT_EQ(steps[1].name, "steady");
  EXPECT_EQ(steps[1].begin, steps[0].end);
  EXPECT_EQ((steps[2].end - steps[2].begin) * 1000, traced.report.timing().step_ps());
}

TEST(Timeline, TheHostIsBusyAsLongAsTheReportSays) {
  const Traced traced = TwoUnits();
  int64_t busy = 0;
  const auto& steps = traced.trace.Track("steps").slices;
  for (const TraceSlice& slice : traced.trace.Track("host (issues)").slices) {
    busy += slice.end - slice.begin;
  }
  ASSERT_EQ(steps.size(), 3u);
  // `first` has one op more, which creates the optimizer's state.
  EXPECT_EQ(busy * 1000, 3 * traced.report.timing().host_busy_ps() + 10'000);
}

TEST(Timeline, EveryCopyOutFollowsItsGather) {
  const Traced traced = Tree();
  std::map<uint64_t, const TraceSlice*> gathers;
  for (const TraceSlice& slice : traced.trace.Track("stream gather").slices) {
    for (uint64_t flow : slice.starts_flows) EXPECT_TRUE(gathers.emplace(flow, &slice).second);
  }
  size_t ended = 0;
  for (const TraceSlice& slice : traced.trace.Track("stream compute").slices) {
    if (slice.name != "copy_out") continue;
    ASSERT_EQ(slice.ends_flows.size(), 1u);
    const auto gather = gathers.find(slice.ends_flows[0]);
    ASSERT_NE(gather, gathers.end());
    EXPECT_EQ(gather->second->notes.at("unit"), slice.notes.at("unit"));
    EXPECT_LE(gather->second->end, slice.begin);
    ++ended;
  }
  EXPECT_EQ(ended, gathers.size());
  EXPECT_GT(ended, 0u);
}

TEST(Timeline, SlicesSayWhatTheyAre) {
  const Traced traced = Tree();
  for (const TraceSlice& slice : traced.trace.Track("stream gather").slices) {
    EXPECT_EQ(slice.name, "all_gather");
    EXPECT_FALSE(slice.notes.at("unit").empty());
    EXPECT_FALSE(slice.notes.at("bytes").empty());
  }
  const auto& compute = traced.trace.Track("stream compute").slices;
  EXPECT_TRUE(std::any_of(compute.begin(), compute.end(), [](const TraceSlice& s) {
    const auto module = s.notes.find("module");
    return s.name == "mm" && module != s.notes.end() && module->second == "layers.0.w1";
  }));
}

TEST(Timeline, TheSameRunGivesTheSameBytes) { EXPECT_EQ(Tree().bytes, Tree().bytes); }

TEST(SimulateWithTrace, WritesAFileAndReportsTheSame) {
  const pb::Plan plan = TreePlan();
  const pb::Cluster cluster = LoadCluster("dgx-a100-80g").value();
  const std::string path = testing::TempDir() + "timeline_test.pftrace";
  const pb::Report traced = SimulateWithTrace(plan, cluster, path).value();
  EXPECT_EQ(traced.SerializeAsString(), Simulate(plan, cluster).value().SerializeAsString());
  EXPECT_EQ(ReadFile(path).value(), Tree().bytes);
  std::filesystem::remove(path);
}

TEST(SimulateWithTrace, AFileThatCannotBeWrittenIsAProblemOfTheFlag) {
  const auto report = SimulateWithTrace(TreePlan(), LoadCluster("dgx-a100-80g").value(),
                                        testing::TempDir() + "no/such/folder/x.pftrace");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), testing::StartsWith("--trace: "));
}

}  // namespace
}  // namespace foreshard
