// Facts of PyTorch's FSDP1 that can be counted in a plan. Numbers of the oracles go on from those
// of FSDP2 (oracles_test.cc); docs/fsdp1.md has them. L blocks and a root with the left-over
// parameters unless said; (i) is block i.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Names = std::vector<std::string>;

PlanRequest Request(int world = 4) {
  PlanRequest request = SmallRequest(world);
  request.strategy = "full_shard";
  return request;
}

pb::Plan PlanOfBlocks(const PlanRequest& request, int blocks) {
  return PlanOf(TreeModel({.blocks = blocks}), request);
}

int CountOf(const pb::Plan& plan, const std::string& kind) {
  int count = 0;
  for (const pb::Phase phase : {pb::FORWARD, pb::BACKWARD}) {
    for (const std::string& name : StepCollectives(plan, 0, phase)) count += name.starts_with(kind);
  }
  return count;
}

std::string Short(const std::string& unit) {
  return unit == "<root>" ? "root" : unit.substr(unit.rfind('.') + 1);
}

// What is asked for, and the free that the host waits for before: {"AG 4", "fwd(3)"}; "" = none. A
// gather that nothing is left to do for is a "no-op".
using Waits = std::vector<std::pair<std::string, std::string>>;

// Follows the records of all programs and of `steady` once more.
class WaitLog {
 public:
  explicit WaitLog(const pb::Plan& plan) : plan_(plan), records_(plan.events_size()) {
    for (int i = 0; i <= plan.programs_size(); ++i) {
      steps_.push_back({});
      for (const auto& use : plan.programs(std::min(i, plan.programs_size() - 1)).uses()) {
        for (const pb::Op& op : plan.segments(use.segment()).ops()) Visit(op);
      }
    }
  }
  // REQUIRES: a step of the walk, from 0.
  Waits Of(size_t step, pb::Phase phase) const {
    Waits waits;
    for (const auto& [p, wait] : steps_.at(step)) {
      if (p == phase) waits.push_back(wait);
    }
    return waits;
  }
  size_t steady() const { return steps_.size() - 1; }

 private:
  void Visit(const pb::Op& op) {
    std::string awaited;
    for (const pb::EventWait& wait : op.event_waits()) {
      const Names& records = records_.at(wait.event());
      awaited = records.at(records.size() - 1 - wait.back());
    }
    const std::string unit = op.has_unit() ? Short(plan_.units(op.unit()).name()) : "";
    if (op.has_all_gather() || !awaited.empty()) {
      const std::string what = op.has_all_gather() ? "AG " : "no-op ";
      steps_.back().push_back({op.phase(), {what + unit, awaited}});
    }
    if (!op.has_record()) return;
    const char* phase = op.phase() == pb::FORWARD ? "fwd" : "bwd";
    records_.at(op.record()).push_back(fmt::format("{}({})", phase, unit));
  }

  const pb::Plan& plan_;
  std::vector<Names> records_;  // per event
  std::vector<std::vector<std::pair<pb::Phase, std::pair<std::string, std::string>>>> steps_;
};

TEST(FsdpOracle15, WithoutSyncTheUnpaddedGradientIsKeptInTheComputeDtype) {
  PlanRequest request = Request();
  request.param_dtype = DType::kBf16;
  request.micro_batches.count = 2;
  request.micro_batches.reduce = false;
  // d = 7 and W = 4: 7 + 7 + 28 * 7 + 7 * 28 = 406 elements, which the ranks do not divide.
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2, .dim = 7}), request);
  std::vector<int64_t> kept;
  WalkPlan(plan, [&](const Moment& moment) {
    if (*moment.program != "steady" || moment.op->micro_batch() != 1 || !kept.empty()) return;
    for (int b = 0; b < plan.buffers_size(); ++b) {
      const pb::Buffer& buffer = plan.buffers(b);
      const bool is_block = buffer.has_unit() && plan.units(buffer.unit()).name() == "layers.0";
      if ((*moment.alive)[b] && buffer.category() == pb::UNSHARDED_GRAD && is_block) {
        kept.push_back(buffer.bytes());
      }
    }
  });
  EXPECT_THAT(kept, ElementsAre(406 * 2));
  EXPECT_TRUE(StepCollectives(plan, 0, pb::BACKWARD).size() ==
              2u);  // gathers of both blocks, no reduction
}

TEST(FsdpOracle16, StrategiesDifferInWhatBackwardGathersAgain) {
  for (int blocks = 1; blocks <= 4; ++blocks) {
    SCOPED_TRACE(blocks);
    PlanRequest request = Request();
    pb::Plan plan = PlanOfBlocks(request, blocks);
    EXPECT_EQ(CountOf(plan, "AG"), 2 * blocks + 1);
    EXPECT_EQ(CountOf(plan, "RS"), blocks + 1);
    EXPECT_EQ(Gathers(plan, "<root>").size(), 1u);  // kept after forward
    request.strategy = "shard_grad_op";
    plan = PlanOfBlocks(request, blocks);
    EXPECT_EQ(CountOf(plan, "AG"), blocks + 1);
    EXPECT_EQ(CountOf(plan, "RS"), blocks + 1);
    request.strategy = "no_shard";
    plan = PlanOfBlocks(request, blocks);
    EXPECT_EQ(CountOf(plan, "AG"), 0);
    EXPECT_EQ(CountOf(plan, "RS"), 0);
    EXPECT_EQ(CountOf(plan, "AR"), blocks + 1);
  }
}

TEST(FsdpOracle17, FirstForwardWaitsForTheFreeTwoBlocksBefore) {
  const WaitLog log(PlanOfBlocks(Request(), 5));
  EXPECT_THAT(log.Of(0, pb::FORWARD),
              ElementsAre(Pair("AG root", ""), Pair("AG 0", ""), Pair("AG 1", ""),
                          Pair("AG 2", "fwd(0)"), Pair("AG 3", "fwd(1)"), Pair("AG 4", "fwd(2)")));
}

TEST(FsdpOracle17, LaterStepsWaitForOneFreeMore) {
  const WaitLog log(PlanOfBlocks(Request(), 5));
  for (size_t step = 1; step <= log.steady(); ++step) {
    SCOPED_TRACE(step);
    EXPECT_THAT(
        log.Of(step, pb::FORWARD),
        ElementsAre(Pair("AG root", "bwd(2)"), Pair("AG 0", "bwd(1)"), Pair("AG 1", "bwd(0)"),
                    Pair("AG 2", "bwd(root)"), Pair("AG 3", "fwd(0)"), Pair("AG 4", "fwd(1)")));
    EXPECT_THAT(
        log.Of(step, pb::BACKWARD),
        ElementsAre(Pair("no-op root", "fwd(2)"), Pair("AG 4", "fwd(3)"), Pair("AG 3", ""),
                    Pair("AG 2", "fwd(4)"), Pair("AG 1", "bwd(4)"), Pair("AG 0", "bwd(3)")));
  }
}

TEST(FsdpOracle17, WithoutTheLimitTheHostWaitsForNothing) {
  PlanRequest request = Request();
  request.fsdp1.limit_all_gathers = false;
  EXPECT_EQ(PlanOfBlocks(request, 5).events_size(), 0);
}

// Collectives of a step and where the units' own kernels run between them.
Names Order(const pb::Plan& plan, int program, pb::Phase phase) {
  Names names;
  for (const pb::SegmentUse& use : plan.programs(program).uses()) {
    for (const pb::Op& op : plan.segments(use.segment()).ops()) {
      if (op.phase() != phase || !op.has_unit()) continue;
      const std::string unit = Short(plan.units(op.unit()).name());
      std::string name;
      if (op.has_all_gather()) name = "AG " + unit;
      if (op.has_reduce_scatter()) name = "RS " + unit;
      if (op.has_compute() && unit != "root") name = "run " + unit;
      if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(name);
    }
  }
  return names;
}

TEST(FsdpOracle18, ForwardPrefetchGathersTheNextUnitOnceTheOrderIsKnown) {
  PlanRequest request = Request();
  const pb::Plan plain = PlanOfBlocks(request, 3);
  request.fsdp1.forward_prefetch = true;
  const pb::Plan plan = PlanOfBlocks(request, 3);
  for (const pb::Phase phase : {pb::FORWARD, pb::BACKWARD}) {
    EXPECT_EQ(Order(plan, 0, phase), Order(plain, 0, phase));
  }
  const int steady = plan.programs_size() - 1;
  EXPECT_THAT(Order(plan, steady, pb::FORWARD),
              ElementsAre("AG root", "AG 0", "AG 1", "run 0", "AG 2", "run 1", "run 2"));
  // The views of a unit are older than the nodes of the unit before, whose backward they wait for.
  EXPECT_THAT(Order(plan, steady, pb::BACKWARD),
              ElementsAre("AG 2", "AG 1", "run 2", "AG 0", "run 1", "RS 2", "run 0", "RS 1", "RS 0",
                          "RS root"));
}

TEST(FsdpOracle19, OddSizesArePaddedByACopyOrBetweenParameters) {
  PlanRequest request = Request();
  request.param_dtype = DType::kBf16;
  const pb::Model model = TreeModel({.blocks = 2, .dim = 7});
  for (const bool orig : {false, true}) {
    SCOPED_TRACE(orig);
    request.fsdp1.use_orig_params = orig;
    const pb::Plan plan = PlanOf(model, request);
    // 406 real elements; on 4 ranks 408. Starting at multiples of 8: 7 + 1, 7 + 1, 196 + 4, 196 and
    // nothing more: 412.
    EXPECT_EQ(Gathers(plan, "layers.0")[0].elems_out(), orig ? 412 : 408);
    int copies = 0;
    for (const pb::Segment& segment : plan.segments()) {
      for (const pb::Op& op : segment.ops()) {
        const pb::ReduceCopyIn& copy = op.reduce_copy_in();
        copies += op.has_reduce_copy_in() && copy.elems_in() == 406 && copy.elems_out() == 408;
      }
    }
    EXPECT_EQ(copies > 0, !orig);
  }
}

TEST(FsdpOracle20, SumsAreDividedBeforeAndAfter) {
  const auto factors = [](int world) {
    std::pair<double, double> found{1, 1};
    int reduced = -1;  // unit
    ForEachStepOp(PlanOfBlocks(Request(world), 1), [&](const pb::Op& op, int) {
      if (op.has_reduce_scatter()) {
        EXPECT_EQ(op.reduce_scatter().reduction(), pb::ReduceScatter::SUM);
        reduced = op.unit();
      }
      if (!op.has_divide()) return;
      (op.unit() == reduced ? found.second : found.first) = op.divide().divisor();
    });
    return found;
  };
  EXPECT_THAT(factors(2), Pair(2, 1));
  EXPECT_THAT(factors(3), Pair(2, 1.5));
  EXPECT_THAT(factors(4), Pair(2, 2));
  EXPECT_THAT(factors(6), Pair(4, 1.5));
  EXPECT_THAT(factors(8), Pair(4, 2));
  EXPECT_THAT(factors(16), Pair(4, 4));
  EXPECT_THAT(factors(64), Pair(8, 8));
  EXPECT_THAT(factors(100), Pair(8, 12.5));
}

TEST(FsdpOracle21, OnlyReentrantCheckpointsAroundUnitsGatherThreeTimes) {
  constexpr int kBlocks = 3;
  for (const auto& [reentrant, outside] :
       {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    SCOPED_TRACE(fmt::format("reentrant {}, outside {}", reentrant, outside));
    PlanRequest request = Request();
    request.checkpoint.modules = {"layers.0", "layers.1", "layers.2"};
    request.checkpoint.reentrant = reentrant;
    request.checkpoint.outside_unit = outside;
    const int gathers = CountOf(PlanOfBlocks(request, kBlocks), "AG");
    EXPECT_EQ(gathers, 1 + (reentrant && outside ? 3 : 2) * kBlocks);
  }
}

TEST(FsdpOracle22, UnitThatRunsTwiceIsGatheredTwiceEachWayAndReducedOnce) {
  pb::Model model = TreeModel({.blocks = 1});
  pb::Module& root = *model.mutable_root();
  pb::Statement again = root.forward(1);
  *again.mutable_in(0) = root.forward(1).out(0);
  *again.mutable_out(0) = "again";
  *root.mutable_forward(2)->mutable_in(0) = "again";
  *root.add_forward() = again;
  for (int i = root.forward_size() - 1; i > 2; --i) root.mutable_forward()->SwapElements(i, i - 1);
  PlanRequest request = Request();
  request.param_dtype = DType::kBf16;
  const pb::Plan plan = PlanOf(model, request);
  EXPECT_EQ(StepCollectives(plan, 0, pb::FORWARD),
            (Names{"AG <root>", "AG layers.0", "AG layers.0"}));
  EXPECT_EQ(Reductions(plan, "layers.0").size(), 1u);
}

TEST(FsdpOracle23, UnitsInsideAUnitAreReducedFirstAndTheRootLast) {
  PlanRequest request = Request();
  request.wrap_calls = {{{"layers.0.w1"}, {}}, {{"layers.0"}, {}}, {{"layers.1"}, {}}, {{""}, {}}};
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  Names reductions;
  for (const std::string& name : StepCollectives(plan, 0, pb::BACKWARD)) {
    if (name.starts_with("RS")) reductions.push_back(name);
  }
  EXPECT_THAT(reductions, ElementsAre("RS layers.1", "RS layers.0.w1", "RS layers.0", "RS <root>"));
}

TEST(FsdpOracle26, FlatGradientsOutliveZeroGradWhereTheOptimizerSeesViews) {
  for (const bool orig : {false, true}) {
    SCOPED_TRACE(orig);
    PlanRequest request = Request();
    request.fsdp1.use_orig_params = orig;
    const pb::Plan plan = PlanOfBlocks(request, 2);
    int64_t shards = 0;
    for (const pb::Unit& unit : plan.units()) shards += unit.padded_shard_numel() * 4;
    const pb::Report report = ReportOf(plan);
    for (const char* program : {"first", "steady"}) {
      const int64_t left = CountedTotal(PhaseOf(report, program, pb::ZERO_GRAD).end_by_category());
      EXPECT_EQ(left, shards * (orig ? 2 : 1)) << program;
    }
  }
}

TEST(FsdpOracle27, ClippingIsOneAllReduceOfOneNumber) {
  PlanRequest request = Request();
  request.clip = ClipRequest{};
  std::vector<int64_t> elems;
  ForEachStepOp(PlanOfBlocks(request, 3), [&](const pb::Op& op, int) {
    if (op.phase() == pb::CLIP && op.has_all_reduce()) elems.push_back(op.all_reduce().elems());
  });
  EXPECT_THAT(elems, ElementsAre(1));
}

}  // namespace
}  // namespace foreshard
