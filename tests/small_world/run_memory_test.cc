// Every plan of the small world runs, and what its ranks hold after each op is what the simulator
// says, to the byte and by category; the first and the steady steps, every rank.
#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>

#include "exec/cpu/sanitizers.h"
#include "exec/run.h"
#include "proto/cluster.pb.h"
#include "proto/plan_check.h"
#include "proto/run/host_walk.h"
#include "proto/run/timeline_recorder.h"
#include "sim/catalogue.h"
#include "sim/compile.h"
#include "sim/cost/roofline.h"
#include "sim/engine.h"
#include "sim/simulate.h"
#include "tests/small_world/mutants.h"
#include "tests/small_world/world.h"

namespace foreshard {
namespace {

using google::protobuf::util::MessageDifferencer;

void ForgetTimes(pb::Timeline& timeline) {
  for (pb::TimelineOp& op : *timeline.mutable_ops()) {
    op.clear_start_ps();
    op.clear_end_ps();
  }
}

void CheckTraining(const exec::RunOutcome& outcome) {
  for (const exec::StepResult& step : outcome.steps) {
    for (const double loss : step.losses) EXPECT_TRUE(std::isfinite(loss)) << loss;
    EXPECT_TRUE(std::isfinite(step.gradient_norm));
  }
}

// What the simulator says of one rank's first steps, one of each program.
pb::Timeline Predict(const pb::Plan& plan, int rank) {
  static const pb::Cluster cluster = LoadCluster("dgx-a100-80g").value();
  const sim::RooflineModel costs(plan, cluster);
  const run::Program program = sim::Compile(plan, costs, rank).value();
  pb::Timeline predicted = run::NewTimeline(plan, program, rank);
  const std::vector<run::ProgramId> steps = run::ProgramsOnce(program);
  std::vector<int32_t> kept(steps.size());
  std::iota(kept.begin(), kept.end(), 0);
  run::TimelineRecorder recorder(plan, program, kept, predicted);
  run::Listener* const listeners[] = {&recorder};
  sim::Engine engine(program, listeners);
  engine.Run(steps);
  ForgetTimes(predicted);
  return predicted;
}

void CheckRank(const pb::Plan& plan, int rank, pb::Timeline measured) {
  const pb::Timeline predicted = Predict(plan, rank);
  ForgetTimes(measured);
  ASSERT_GT(predicted.ops_size(), 10);
  EXPECT_TRUE(MessageDifferencer::Equals(predicted, measured)) << "rank " << rank;
}

// Peaks, their places and what is alive then, of every phase and rank.
void CheckReport(const pb::Plan& plan, const pb::Report& measured) {
  static const pb::Cluster cluster = LoadCluster("dgx-a100-80g").value();
  const pb::Report predicted = Simulate(plan, cluster).value();
  EXPECT_TRUE(MessageDifferencer::Equals(predicted.peak(), measured.peak()));
  EXPECT_TRUE(MessageDifferencer::Equals(predicted.host(), measured.host()));
  ASSERT_EQ(predicted.phases_size(), measured.phases_size());
  for (int i = 0; i < predicted.phases_size(); ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(predicted.phases(i), measured.phases(i))) << i;
  }
  ASSERT_EQ(predicted.ranks_size(), measured.ranks_size());
  for (int i = 0; i < predicted.ranks_size(); ++i) {
    EXPECT_TRUE(MessageDifferencer::Equals(predicted.ranks(i), measured.ranks(i))) << i;
  }
}

StatusOr<exec::RunOutcome> RunAllPrograms(const pb::Plan& plan) {
  exec::RunOptions options;
  options.steps = plan.programs_size();
  options.keeps_timelines = true;
  ASSIGN_OR_RETURN(const auto weights, exec::WeightsFromSeed(plan, 1));
  ASSIGN_OR_RETURN(const auto data, exec::SyntheticData(plan, 1));
  return exec::RunOnCpu(plan, *weights, *data, true, options);
}

void CheckRun(const pb::Plan& plan) {
  const auto outcome = RunAllPrograms(plan);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  CheckTraining(*outcome);
  for (int rank = 0; rank < plan.mesh().world_size(); ++rank) {
    CheckRank(plan, rank, outcome->timelines[rank]);
  }
  CheckReport(plan, outcome->report);
}

// Plans to run: a seeded sample, a small one where sanitizers slow everything down, or what
// FORESHARD_SMALL_RUNS asks for ("all" is for the sweep).
std::vector<SmallCase> CasesToRun(Library library) {
  std::vector<SmallCase> cases = SmallLayouts(400, library);
  for (SmallCase& c : RandomSmallCases(500, 7, library)) cases.push_back(std::move(c));
  const char* asked = std::getenv("FORESHARD_SMALL_RUNS");
  if (asked != nullptr && std::string(asked) == "all") return cases;
  const size_t usual = exec::sanitizers::kIsSanitized ? 60 : 700;
  std::mt19937_64 random(23);
  std::shuffle(cases.begin(), cases.end(), random);
  const size_t limit = asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
  cases.resize(std::min(cases.size(), limit));
  return cases;
}

class SmallWorldRunOf : public testing::TestWithParam<Library> {};
INSTANTIATE_TEST_SUITE_P(All, SmallWorldRunOf,
                         testing::Values(Library::kFsdp2, Library::kFsdp1, Library::kDdp),
                         [](const auto& library) { return Name(library.param); });

TEST_P(SmallWorldRunOf, BytesAfterEachOpAreThePredictedOnes) {
  int plans = 0;
  for (const SmallCase& c : CasesToRun(GetParam())) {
    const StatusOr<pb::Plan> plan = PlanOfCase(c);
    if (!plan.ok()) continue;
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(CheckRun(*plan));
    if (HasFailure()) return;
    ++plans;
  }
  fmt::print("{} plans ran\n", plans);
  EXPECT_GT(plans, 20);
}

// What the optimizer updates: each parameter, the shard of a unit, or each parameter's part of it.
enum class Updates { kParameters, kUnits, kParts };
class OptimizerMemory : public testing::TestWithParam<Updates> {};
std::string NameOf(const testing::TestParamInfo<Updates>& info) {
  constexpr const char* kNames[] = {"Parameters", "Units", "Parts"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, OptimizerMemory,
                         testing::Values(Updates::kParameters, Updates::kUnits, Updates::kParts),
                         NameOf);

// Of optimizers and clipping every combination: on one rank, on three of which the last holds less,
// with replicas, and on the host.
TEST_P(OptimizerMemory, IsThePredictedOne) {
  struct Ranks {
    int world, replicas;
    bool offloads;
  };
  for (const Ranks& ranks :
       {Ranks{1, 1, false}, Ranks{3, 1, false}, Ranks{4, 2, false}, Ranks{2, 1, true}}) {
    for (const char* optimizer : {"adamw", "sgd", "adamw8bit"}) {
      for (const char* impl : {"fused", "foreach", "loop"}) {
        SmallCase c;
        c.name = fmt::format("{} {} on {} ranks", optimizer, impl, ranks.world);
        c.request.world_size = ranks.world;
        c.request.replicate_size = ranks.replicas;
        if (GetParam() != Updates::kParameters) {
          c.request.strategy = ranks.replicas > 1 ? "hybrid_shard" : "full_shard";
          c.request.fsdp1.use_orig_params = GetParam() == Updates::kParts;
        }
        c.request.cpu_offload = ranks.offloads;
        c.request.seq = 4;
        c.request.optimizer = optimizer;
        c.request.optimizer_impl = impl;
        c.request.weight_decay = 0.1;
        c.request.clip = ClipRequest{0.5, c.request.optimizer_impl != "loop"};
        if (c.request.optimizer != "adamw8bit") c.request.state_dtype = DType::kBf16;
        SCOPED_TRACE(c.name);
        const StatusOr<pb::Plan> plan = PlanOfCase(c);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        ASSERT_NO_FATAL_FAILURE(CheckRun(*plan));
      }
    }
  }
}

// ---- that this can fail

// Who catches a plan whose memory is wrong.
enum class Catcher { kCheck, kOperands, kCompare, kNobody };

// Of those that run a plan.
Catcher CatchRunning(const pb::Plan& plan, const pb::Plan& mutant) {
  auto outcome = RunAllPrograms(mutant);
  if (!outcome.ok()) return Catcher::kOperands;
  for (int rank = 0; rank < plan.mesh().world_size(); ++rank) {
    pb::Timeline& measured = outcome.value().timelines[rank];
    ForgetTimes(measured);
    if (!MessageDifferencer::Equals(Predict(plan, rank), measured) ||
        !MessageDifferencer::Equals(Predict(mutant, rank), measured)) {
      return Catcher::kCompare;
    }
  }
  return Catcher::kNobody;
}

// What happens to a buffer on the host is in no timeline, and in a report only where it is the
// most.
bool IsOnHost(const pb::Plan& plan, Mutation mutation, const Site& site) {
  const bool frees = mutation == Mutation::kFreeEarlier || mutation == Mutation::kFreeLater;
  const int buffer =
      frees ? plan.segments(site.segment).ops(site.op).frees(site.index) : site.index;
  return plan.buffers(buffer).host();
}

TEST_P(SmallWorldRunOf, AWrongSizeCategoryOrFreeIsCaught) {
  std::mt19937_64 random(17);
  const std::vector<SmallCase> cases =
      RandomSmallCases(exec::sanitizers::kIsSanitized ? 10 : 60, 19, GetParam());
  std::map<Mutation, std::map<Catcher, int>> counts;
  for (const SmallCase& c : cases) {
    const StatusOr<pb::Plan> plan = PlanOfCase(c);
    if (!plan.ok()) continue;
    for (const Mutation mutation :
         {Mutation::kShrinkBuffer, Mutation::kGrowBuffer, Mutation::kChangeCategory,
          Mutation::kFreeEarlier, Mutation::kFreeLater}) {
      const std::vector<Site> sites = Sites(*plan, mutation);
      if (sites.empty()) continue;
      const Site& site = sites[random() % sites.size()];
      const pb::Plan mutant = Mutant(*plan, mutation, site);
      const bool is_refused = !CheckPlan(mutant).ok();
      if (is_refused) {
        ++counts[mutation][Catcher::kCheck];
        if (exec::sanitizers::kIsSanitized) continue;  // that would rightly end the process
      }
      const Catcher catcher = CatchRunning(*plan, mutant);  // whatever the check says
      ++counts[mutation][catcher];
      if (IsOnHost(*plan, mutation, site)) continue;
      EXPECT_NE(catcher, Catcher::kNobody)
          << c.name << ": " << Name(mutation) << ", segment " << site.segment << " op " << site.op
          << " entry " << site.index;
    }
  }
  for (auto& [mutation, caught] : counts) {
    fmt::print("{:<18}: plan_check {}; with that off, operand check {}, compare {}\n",
               Name(mutation), caught[Catcher::kCheck], caught[Catcher::kOperands],
               caught[Catcher::kCompare]);
  }
  EXPECT_EQ(counts.size(), 5u);
}

}  // namespace
}  // namespace foreshard
