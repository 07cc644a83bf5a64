// What the host's waits for earlier frees do: they bound how many units are gathered at once,
// whatever the times, and change no number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "exec/cpu/sanitizers.h"
#include "exec/run.h"
#include "sim/compile.h"
#include "sim/cost/cost_model.h"
#include "tests/small_world/world.h"
#include "tests/testing/schedule_recorder.h"

namespace foreshard {
namespace {

constexpr int kBlocks = 6;
constexpr int kSteps = 5;
constexpr int kTimings = 60;

SmallCase Blocks(const std::string& strategy) {
  SmallCase c;
  c.blocks = kBlocks;
  c.request.world_size = 4;
  c.request.seq = 4;
  c.request.strategy = strategy;
  if (strategy == "hybrid_shard") c.request.replicate_size = 2;
  return c;
}

// Every op takes any time up to a nanosecond; the device is up to 100 times slower than the host,
// or faster.
class RandomCosts final : public sim::CostModel {
 public:
  explicit RandomCosts(uint64_t seed) : random_(seed) {
    device_ = std::pow(10, std::uniform_real_distribution(-2.0, 2.0)(random_));
  }
  sim::OpCost Price(const pb::Op& op) const override {
    if (!op.has_stream()) return {};
    std::uniform_real_distribution time(0.0, 1e-9);
    return {Seconds(time(random_)), Seconds(device_ * time(random_))};
  }

 private:
  mutable std::mt19937_64 random_;
  double device_;
};

// From the issue of a gather to the end of what uses it.
struct Gathered {
  int64_t issued = 0;
  int64_t freed = std::numeric_limits<int64_t>::max();
};

// Of all units but the root, which stays gathered from its forward to the end of backward.
std::vector<Gathered> GathersOf(const pb::Plan& plan, const sim::ScheduleRecorder& schedule) {
  std::vector<Gathered> gathers;
  std::vector<int> last(plan.units_size(), -1);
  int64_t compute_ended = 0;
  for (const sim::RecordedOp& recorded : schedule.ops) {
    const pb::Op& op =
        plan.segments(static_cast<int>(recorded.instance.segment)).ops(recorded.instance.position);
    if (op.has_stream() && op.stream() == 0) compute_ended = recorded.ended;
    if (!op.has_unit() || plan.units(op.unit()).name() == "<root>") continue;
    int& of_unit = last[op.unit()];
    if (op.has_all_gather()) {
      of_unit = static_cast<int>(gathers.size());
      gathers.push_back({recorded.issued});
    } else if (op.has_reshard() && of_unit >= 0) {
      gathers[of_unit].freed = compute_ended;
      of_unit = -1;
    }
  }
  return gathers;
}

int MostAtOnce(const std::vector<Gathered>& gathers) {
  int most = 0;
  for (size_t i = 0; i < gathers.size(); ++i) {
    const auto is_there = [&](const Gathered& g) { return g.freed > gathers[i].issued; };
    const auto count = std::count_if(gathers.begin(), gathers.begin() + i + 1, is_there);
    most = std::max(most, static_cast<int>(count));
  }
  return most;
}

// Over several steps and many timings.
int MostAtOnce(const pb::Plan& plan) {
  int most = 0;
  for (int timing = 0; timing < kTimings; ++timing) {
    const run::Program program = sim::Compile(plan, RandomCosts(timing)).value();
    std::vector<int> steps;
    for (int s = 0; s < kSteps; ++s) steps.push_back(std::min(s, plan.programs_size() - 1));
    const sim::RecordedRun run = sim::RunRecorded(program, steps);
    EXPECT_TRUE(run.verdict.ok()) << run.verdict.message();
    const std::vector<Gathered> gathers = GathersOf(plan, run.schedule);
    EXPECT_GE(static_cast<int>(gathers.size()), kSteps * kBlocks);
    most = std::max(most, MostAtOnce(gathers));
  }
  return most;
}

struct Prefetch {
  const char* when;
  int most;  // blocks gathered at once
};
class Limiter : public testing::TestWithParam<Prefetch> {
 protected:
  static SmallCase Case(const std::string& strategy) {
    SmallCase c = Blocks(strategy);
    c.request.fsdp1.backward_prefetch = GetParam().when;
    return c;
  }
};

// Whoever asks for a unit waits where two frees or more are queued, for the oldest of them. Each
// free is followed by one that asks, so that one free is queued afterwards, whose unit may still be
// in use: with the new one that makes two. Where units are gathered ahead in backward, two ask
// before the first is freed there, and the last two frees of a step have nobody that asks after
// them: two frees are queued from then on, and at most three units are there.
INSTANTIATE_TEST_SUITE_P(BackwardPrefetch, Limiter,
                         testing::Values(Prefetch{"pre", 3}, Prefetch{"post", 2},
                                         Prefetch{"none", 2}),
                         [](const auto& prefetch) { return std::string(prefetch.param.when); });

TEST_P(Limiter, BoundsTheBlocksThatAreGatheredAtOnce) {
  for (const char* strategy : {"full_shard", "hybrid_shard"}) {
    EXPECT_EQ(MostAtOnce(PlanOfCase(Case(strategy)).value()), GetParam().most) << strategy;
  }
}

// Then a slow device has all that the host has issued: both passes of a step, and more.
TEST_P(Limiter, WithoutItTheHostRunsAhead) {
  SmallCase c = Case("full_shard");
  c.request.fsdp1.limit_all_gathers = false;
  EXPECT_GT(MostAtOnce(PlanOfCase(c).value()), kBlocks);
}

// ---- real runs

exec::RunOutcome RunSteps(const pb::Plan& plan) {
  const auto weights = exec::WeightsFromSeed(plan, 1).value();
  const auto data = exec::SyntheticData(plan, 1).value();
  exec::RunOptions options;
  options.steps = 4;
  options.keeps_weights = true;
  auto outcome = exec::RunOnCpu(plan, *weights, *data, true, options);
  CHECK(outcome.ok()) << outcome.status().message();
  return std::move(outcome).value();
}

TEST(HostWaits, ChangeNoNumber) {
  int plans = 0;
  for (const SmallCase& c : RandomSmallCases(240, 31, Library::kFsdp1)) {
    StatusOr<pb::Plan> plan = PlanOfCase(c);
    if (!plan.ok() || plan->events().empty()) continue;
    const exec::RunOutcome with = RunSteps(*plan);
    for (pb::Segment& segment : *plan.value().mutable_segments()) {
      for (pb::Op& op : *segment.mutable_ops()) op.clear_event_waits();
    }
    const exec::RunOutcome without = RunSteps(*plan);
    for (size_t s = 0; s < with.steps.size(); ++s) {
      EXPECT_EQ(with.steps[s].losses, without.steps[s].losses) << c.name;
    }
    for (size_t i = 0; i < with.weights.size(); ++i) {
      EXPECT_EQ(with.weights[i].bytes, without.weights[i].bytes) << c.name;
    }
    ++plans;
  }
  EXPECT_GT(plans, 5);
}

}  // namespace
}  // namespace foreshard
