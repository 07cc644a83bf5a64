// Facts of PyTorch's FSDP2 that can be counted in a plan. The numbers of the oracles, and where
// each was observed, are in docs/fsdp2.md. L blocks and a root with the left-over parameters unless
// said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/model_source.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

using Names = std::vector<std::string>;

const char* const kVersions[] = {"2.14", "2.15"};

PlanRequest Request(const std::string& torch) {
  PlanRequest request = SmallRequest(4);
  request.torch = torch;
  return request;
}

std::string Block(int i) { return "layers." + std::to_string(i); }

int CountOf(const pb::Plan& plan, pb::Phase phase, const std::string& kind) {
  int count = 0;
  for (const std::string& name : Collectives(plan, phase)) count += name.starts_with(kind) ? 1 : 0;
  return count;
}

const pb::Unit& UnitNamed(const pb::Plan& plan, const std::string& name) {
  for (const pb::Unit& unit : plan.units()) {
    if (unit.name() == name) return unit;
  }
  ADD_FAILURE() << "no unit " << name;
  return plan.units(0);
}

TEST(FsdpOracle1, StepHas2LPlus1GathersAndLPlus1ReductionsOfEachUnitsSize) {
  for (const char* torch : kVersions) {
    for (int blocks = 1; blocks <= 4; ++blocks) {
      SCOPED_TRACE(testing::Message() << torch << ", blocks " << blocks);
      const pb::Plan plan = PlanOf(TreeModel({.blocks = blocks}), Request(torch));
      EXPECT_EQ(CountOf(plan, pb::FORWARD, "AG"), blocks + 1);
      EXPECT_EQ(CountOf(plan, pb::BACKWARD, "AG"), blocks);
      EXPECT_EQ(CountOf(plan, pb::FORWARD, "RS"), 0);
      EXPECT_EQ(CountOf(plan, pb::BACKWARD, "RS"), blocks + 1);
      EXPECT_EQ(plan.units_size(), blocks + 1);
      for (const pb::Unit& unit : plan.units()) {
        for (const pb::AllGather& gather : Gathers(plan, unit.name())) {
          EXPECT_EQ(gather.elems_in(), unit.padded_shard_numel());
          EXPECT_EQ(gather.elems_out(), 4 * unit.padded_shard_numel());
        }
        for (const pb::ReduceScatter& reduce : Reductions(plan, unit.name())) {
          EXPECT_EQ(reduce.elems_out(), unit.grad_padded_shard_numel());
          EXPECT_EQ(reduce.elems_in(), 4 * unit.grad_padded_shard_numel());
        }
      }
    }
  }
}

TEST(FsdpOracle1, ForwardGathersTheRootFirstThenBlocksInOrder) {
  for (const char* torch : kVersions) {
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 3}), Request(torch));
    EXPECT_THAT(Collectives(plan, pb::FORWARD),
                ElementsAre("AG <root>", "AG layers.0", "AG layers.1", "AG layers.2"));
  }
}

TEST(FsdpOracle1, Llama2Of32LayersHas65GathersAnd33Reductions) {
  const StatusOr<pb::Model> model =
      LoadModel(FORESHARD_SOURCE_DIR "/tests/data/models/llama-2-7b.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const char* torch : kVersions) {
    PlanRequest request;
    request.world_size = 8;
    request.seq = 512;
    request.torch = torch;
    const pb::Plan plan = PlanOf(*model, request);
    EXPECT_EQ(plan.header().parameter_count(), 6738415616);
    // 2 * 32 + 1 and 32 + 1.
    EXPECT_EQ(CountOf(plan, pb::FORWARD, "AG") + CountOf(plan, pb::BACKWARD, "AG"), 65);
    EXPECT_EQ(CountOf(plan, pb::BACKWARD, "RS"), 33);
  }
}

TEST(FsdpOracle2, RootThatReshardsIsGatheredAgainUnprefetchedAndFirst) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.root_reshard_after_forward = true;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 3}), request);
    // 2 * 3 + 2 in all, 3 + 1 of them in forward.
    EXPECT_EQ(CountOf(plan, pb::FORWARD, "AG"), 4);
    EXPECT_EQ(CountOf(plan, pb::BACKWARD, "AG"), 4);
    EXPECT_EQ(Collectives(plan, pb::BACKWARD)[0], "AG <root>");
    const std::vector<pb::AllGather> root = Gathers(plan, "<root>");
    ASSERT_EQ(root.size(), 2u);
    EXPECT_EQ(root[0].reason(), pb::AllGather::REASON_FORWARD);
    EXPECT_EQ(root[1].reason(), pb::AllGather::REASON_BACKWARD);
  }
}

TEST(FsdpOracle2, OnlyAnUnwrappedNeighbourIsGatheredWithoutPrefetch) {
  for (const char* torch : kVersions) {
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 3}), Request(torch));
    // The root is kept, so that its own pre-backward prefetches the last block.
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(Gathers(plan, Block(i))[1].reason(), pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
    }
  }
}

TEST(FsdpOracle3, TitanLayoutKeepsNormAndHeadAndLeavesTheRootEmpty) {
  for (const char* torch : kVersions) {
    for (int blocks = 1; blocks <= 3; ++blocks) {
      PlanRequest request = Request(torch);
      request.wrap = "titan";
      const pb::Plan plan = PlanOf(TreeModel({.blocks = blocks}), request);
      EXPECT_EQ(CountOf(plan, pb::FORWARD, "AG"), blocks + 2);
      EXPECT_EQ(CountOf(plan, pb::BACKWARD, "AG"), blocks + 1);
      EXPECT_EQ(CountOf(plan, pb::BACKWARD, "RS"), blocks + 2);
      EXPECT_EQ(Gathers(plan, "norm+head").size(), 1u);
      EXPECT_EQ(Gathers(plan, "emb").size(), 2u);
      for (const pb::Unit& unit : plan.units()) EXPECT_NE(unit.name(), "<root>");
    }
  }
}

TEST(FsdpOracle4, BlocksThatKeepTheirParametersAreGatheredOnce) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.reshard_after_forward = false;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 3}), request);
    EXPECT_EQ(CountOf(plan, pb::FORWARD, "AG"), 4);
    EXPECT_EQ(CountOf(plan, pb::BACKWARD, "AG"), 0);
    EXPECT_EQ(CountOf(plan, pb::BACKWARD, "RS"), 4);
  }
}

TEST(FsdpOracle6, UnevenRowsArePaddedPerParameter) {
  for (const char* torch : kVersions) {
    // d = 8, W = 4. Block: 8 + 8 + 32 * 8 + 8 * 32 = 528, a quarter of it is 132. Root: 10 rows of
    // 8 on 4 ranks are 3 rows each, 24 elements; the norm's two vectors 2 each: 4 (24 + 2 + 2 + 24)
    // = 208, though only 80 + 8 + 8 + 80 = 176 are real.
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2, .dim = 8, .vocab = 10}), Request(torch));
    const pb::AllGather block = Gathers(plan, Block(0))[0];
    EXPECT_EQ(block.elems_out(), 528);
    EXPECT_EQ(Reductions(plan, Block(0))[0].elems_in(), 528);
    EXPECT_EQ(Reductions(plan, Block(0))[0].elems_out(), 132);
    EXPECT_EQ(Gathers(plan, "<root>")[0].elems_out(), 208);
    EXPECT_EQ(Reductions(plan, "<root>")[0].elems_in(), 208);
    EXPECT_EQ(Reductions(plan, "<root>")[0].elems_out(), 52);
    EXPECT_EQ(UnitNamed(plan, "<root>").numel(), 176);
  }
}

TEST(FsdpOracle7, TiedHeadIsGatheredOnce) {
  for (const char* torch : kVersions) {
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2, .tie = true}), Request(torch));
    // 4 (24 + 2 + 2): the embedding's rows and the norm.
    EXPECT_EQ(Gathers(plan, "<root>")[0].elems_out(), 112);
    EXPECT_EQ(Reductions(plan, "<root>")[0].elems_in(), 112);
    EXPECT_THAT(plan.parameters(0).shared_with(), ElementsAre("head.weight"));
    EXPECT_EQ(plan.header().parameter_count(), 80 + 2 * 528 + 16);
  }
}

TEST(FsdpOracle8, RanksBeyondTheRowsHoldPaddingOnly) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.optimizer = "adamw";
    request.wrap = "whole";
    const pb::Plan plan = PlanOf(TwoParameterModel(), request);
    // Shards: ceil(2/4) rows of 6, ceil(5/4) = 2 elements. 4 (6 + 2) = 32, of which 12 + 5 are
    // real.
    EXPECT_EQ(Gathers(plan, "<root>")[0].elems_out(), 32);
    EXPECT_EQ(Reductions(plan, "<root>")[0].elems_in(), 32);
    EXPECT_EQ(plan.units(0).numel(), 17);
    for (const pb::Op& op : plan.segments(0).ops()) {
      if (!op.has_reduce_copy_in()) continue;
      EXPECT_EQ(op.reduce_copy_in().elems_in(), 17);
    }
    // State follows the real rows: rank 3 has (0, 6) and (0,), rank 2 (0, 6) and (1,).
    std::map<int64_t, std::map<int, int64_t>> moments;  // bytes on rank 0 -> rank -> bytes
    for (const pb::Buffer& b : plan.buffers()) {
      if (b.category() != pb::OPTIMIZER_STATE || b.others().empty()) continue;
      for (const pb::RankBytes& fewer : b.others())
        moments[b.bytes()][fewer.rank()] = fewer.bytes();
    }
    EXPECT_THAT(moments[6 * 4], ElementsAre(testing::Pair(2, 0), testing::Pair(3, 0)));
    EXPECT_THAT(moments[2 * 4], ElementsAre(testing::Pair(2, 4), testing::Pair(3, 0)));
  }
}

TEST(FsdpOracle9, BackwardGathersOneAheadAndReducesBehind) {
  for (const char* torch : kVersions) {
    for (int blocks = 1; blocks <= 5; ++blocks) {
      // AG(L-1), then AG(k-1), RS(k) for each block k > 0, RS(0), RS(root).
      Names expected = {"AG " + Block(blocks - 1)};
      for (int k = blocks - 1; k > 0; --k) {
        expected.push_back("AG " + Block(k - 1));
        expected.push_back("RS " + Block(k));
      }
      expected.push_back("RS " + Block(0));
      expected.push_back("RS <root>");
      const pb::Plan plan = PlanOf(TreeModel({.blocks = blocks}), Request(torch));
      EXPECT_THAT(Collectives(plan, pb::BACKWARD), ElementsAreArray(expected));
    }
  }
}

TEST(FsdpOracle10, TitanBackwardStartsWithTheHeadAndEndsWithTheEmbedding) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.wrap = "titan";
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 3}), request);
    EXPECT_THAT(Collectives(plan, pb::BACKWARD),
                ElementsAre("AG layers.2", "RS norm+head", "AG layers.1", "RS layers.2",
                            "AG layers.0", "RS layers.1", "AG emb", "RS layers.0", "RS emb"));
  }
}

TEST(FsdpOracle11, BlockBehindAFrozenEmbeddingIsReducedAfterTheRoot) {
  for (const char* torch : kVersions) {
    pb::Model model = TreeModel({.blocks = 3});
    Freeze(FindModule(model, "emb"));
    const Names backward = Collectives(PlanOf(model, Request(torch)), pb::BACKWARD);
    ASSERT_GE(backward.size(), 2u);
    EXPECT_EQ(backward[backward.size() - 2], "RS <root>");
    EXPECT_EQ(backward.back(), "RS layers.0");
  }
}

TEST(FsdpOracle12, OnlyParametersWithAGradientAreReduced) {
  for (const char* torch : kVersions) {
    pb::Model model = TreeModel({.blocks = 3});
    FindModule(model, "layers.0.norm").mutable_params(0)->set_frozen(true);
    Freeze(FindModule(model, "layers.0.w1"));
    Freeze(FindModule(model, "layers.1"));
    const pb::Plan plan = PlanOf(model, Request(torch));
    // norm.bias and w2: 8 + 8 * 32 = 264, a quarter of it 66; all 528 are gathered.
    EXPECT_EQ(Gathers(plan, Block(0))[0].elems_out(), 528);
    EXPECT_EQ(Reductions(plan, Block(0))[0].elems_in(), 264);
    EXPECT_EQ(Reductions(plan, Block(0))[0].elems_out(), 66);
    // A frozen block between trainable ones runs its backward, so it is gathered twice.
    EXPECT_EQ(Gathers(plan, Block(1)).size(), 2u);
    EXPECT_EQ(Reductions(plan, Block(1)).size(), 0u);
  }
}

TEST(FsdpOracle13, MixedPrecisionAveragesInTheReduceDtype) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    request.param_dtype = DType::kBf16;
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    for (const pb::Unit& unit : plan.units()) {
      EXPECT_EQ(Gathers(plan, unit.name())[0].dtype(), pb::BF16);
      const pb::ReduceScatter reduce = Reductions(plan, unit.name())[0];
      EXPECT_EQ(reduce.dtype(), pb::FP32);
      EXPECT_EQ(reduce.reduction(), pb::ReduceScatter::AVG);
    }
  }
}

TEST(FsdpOracle23, UnitsInsideAUnitAreGatheredBackwardsAndReducedFirst) {
  for (const char* torch : kVersions) {
    PlanRequest request = Request(torch);
    for (const std::string& block : {Block(0), Block(1)}) {
      request.wrap_calls.push_back({{block + ".w1"}, {}});
      request.wrap_calls.push_back({{block + ".w2"}, {}});
      request.wrap_calls.push_back({{block}, {}});
    }
    request.wrap_calls.push_back({{""}, {}});
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
    Names gathers;
    Names reductions;
    for (const std::string& name : Collectives(plan, pb::BACKWARD)) {
      (name.starts_with("AG") ? gathers : reductions).push_back(name.substr(3));
    }
    EXPECT_THAT(gathers, ElementsAre("layers.1", "layers.1.w2", "layers.1.w1", "layers.0",
                                     "layers.0.w2", "layers.0.w1"));
    EXPECT_THAT(reductions, ElementsAre("layers.1.w2", "layers.1.w1", "layers.1", "layers.0.w2",
                                        "layers.0.w1", "layers.0", "<root>"));
  }
}

TEST(FsdpOracle26, ZeroGradLeavesShardsAndOptimizerStateOnly) {
  for (const char* torch : kVersions) {
    for (const bool adamw : {false, true}) {
      PlanRequest request = Request(torch);
      request.optimizer = adamw ? "adamw" : "none";
      const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
      // Shards: 2 blocks of 132 elements and a root of 52. State of rank 0, which has every padded
      // row: two moments of the same sizes and 4 bytes of step count for each of 12 parameters.
      const int64_t shards = (2 * 132 + 52) * 4;
      const int64_t state = adamw ? 2 * shards + 12 * 4 : 0;
      const pb::Report report = ReportOf(plan);
      for (const char* program : {"first", "steady"}) {
        const pb::PhaseMemory& phase = PhaseOf(report, program, pb::ZERO_GRAD);
        EXPECT_EQ(CountedTotal(phase.end_by_category()), shards + state) << program;
      }
    }
  }
}

TEST(FsdpOracle28, GradientsOfAUnitAreOneBufferOfItsShard) {
  for (const char* torch : kVersions) {
    const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), Request(torch));
    std::vector<std::pair<std::string, int64_t>> gradients;
    for (const pb::Buffer& b : plan.buffers()) {
      if (b.category() != pb::SHARDED_GRAD) continue;
      gradients.emplace_back(plan.units(b.unit()).name(), b.bytes());
      EXPECT_TRUE(b.others().empty());  // padded, so the same on every rank
    }
    // In the order of their reductions.
    EXPECT_THAT(gradients,
                ElementsAre(testing::Pair("layers.1", 132 * 4), testing::Pair("layers.0", 132 * 4),
                            testing::Pair("<root>", 52 * 4)));
  }
}

}  // namespace
}  // namespace foreshard
