#include "tools/textbook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "planner/model_source.h"
#include "proto/report.pb.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"
#include "tests/tools/equal_blocks.h"

namespace foreshard {
namespace {

using testing::Contains;
using testing::Key;
using testing::Not;

PlanRequest Request(int world, const std::string& wrap = "block") {
  PlanRequest request;
  request.world_size = world;
  request.seq = 8;
  request.wrap = wrap;
  return request;
}

pb::Textbook TextbookOf(const pb::Plan& plan) {
  pb::Report report;
  FillTextbook(plan, report);
  return report.textbook();
}

std::map<std::string, int64_t> Terms(const pb::Textbook& textbook) {
  std::map<std::string, int64_t> terms;
  for (const pb::LedgerTerm& term : textbook.difference()) terms[term.name()] += term.bytes();
  return terms;
}

// The terms lead from the textbook to the highest managed moment that the simulator found.
void ExpectSums(const pb::Plan& plan) {
  const pb::Textbook t = TextbookOf(plan);
  int64_t sum = t.persistent_bytes() + t.transient_bytes();
  for (const pb::LedgerTerm& term : t.difference()) {
    EXPECT_NE(term.bytes(), 0) << term.name();
    sum += term.bytes();
  }
  EXPECT_EQ(sum, t.managed_peak_bytes());
  EXPECT_EQ(Terms(t).size(), static_cast<size_t>(t.difference_size())) << "a name twice";
  int64_t simulated = 0;
  const pb::Report report = ReportOf(plan);
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (phase.program() == "steady") simulated = std::max(simulated, phase.managed_peak_bytes());
  }
  EXPECT_EQ(t.managed_peak_bytes(), simulated);
}

TEST(Textbook, SevenBillionParametersOnEightRanks) {
  const pb::Textbook t = TextbookOf(SevenBillion("block"));
  EXPECT_EQ(t.parameters(), 7'000'000'000);
  EXPECT_EQ(t.unit_parameters(), 218'750'000);
  EXPECT_EQ(t.ranks(), 8);
  EXPECT_EQ(t.gathered_ahead(), 1);
  EXPECT_EQ(t.replicated_bytes(), 112'000'000'000);
  EXPECT_EQ(t.persistent_bytes(), 14'000'000'000);
  EXPECT_EQ(t.transient_bytes(), 875'000'000);  // about 0.9 GB, about 15 GB with what persists
  EXPECT_EQ(t.payload_bytes(), 3 * 14'000'000'000);
  EXPECT_EQ(t.all_reduce_bytes(), 28'000'000'000);
  EXPECT_EQ(t.ring_payload_bytes(), 36'750'000'000);
  EXPECT_EQ(t.ring_all_reduce_bytes(), 24'500'000'000);
}

TEST(Textbook, TheWholeModelAsOneUnitIsGatheredAtOnce) {
  const pb::Textbook t = TextbookOf(SevenBillion("whole"));
  EXPECT_EQ(t.unit_parameters(), 7'000'000'000);
  EXPECT_EQ(t.gathered_ahead(), 0);
  EXPECT_EQ(t.transient_bytes(), 14'000'000'000);
}

// Worked out by hand. The highest moment is the end of a block's backward: its parameters (2 U) and
// the gather of the one before (2 U) as in textbooks, its whole gradients (2 U) and the reduction's
// fp32 input of the block after it (4 U): 10 bytes an element, 5 U in 16 bits.
TEST(Textbook, SevenBillionInTruth) {
  const pb::Plan plan = SevenBillion("block");
  const pb::Textbook t = TextbookOf(plan);
  ExpectSums(plan);
  const auto terms = Terms(t);
  const int64_t p8 = t.parameters() / 8;
  const int64_t u = t.unit_parameters();
  EXPECT_EQ(terms.at("one copy of the weights, not a 16-bit one beside a 32-bit one"), -2 * p8);
  EXPECT_EQ(terms.at("gradients in the dtype of the shards, not in 16 bits"), 2 * p8);
  EXPECT_EQ(terms.at("step counters of the optimizer"), 4 * 128);
  EXPECT_EQ(terms.at("inputs of reductions"), 4 * u);
  EXPECT_EQ(terms.at("whole gradients, not reduced yet"), 2 * u);
  EXPECT_THAT(terms, Not(Contains(Key("uneven shards: padding, and rank 0's larger part"))));
  EXPECT_THAT(terms, Not(Contains(Key("units in use: their size at the peak against 2 U"))));
}

TEST(Textbook, DifferencesSumForManyPlans) {
  const pb::Model tree = TreeModel({.blocks = 5, .dim = 24, .vocab = 50});
  const pb::Model tied = TreeModel({.blocks = 3, .dim = 16, .vocab = 40, .tie = true});
  for (const pb::Model* model : {&tree, &tied}) {
    for (const int world : {1, 2, 3, 7, 8}) {
      for (const char* wrap : {"block", "every:2", "every:3", "whole", "class:Block"}) {
        for (const char* torch : {"2.14", "2.15"}) {
          SCOPED_TRACE(testing::Message() << model->name() << " " << world << wrap << torch);
          PlanRequest request = Request(world, wrap);
          request.torch = torch;
          ExpectSums(PlanOf(*model, request));
          request.reduce_dtype = DType::kBf16;
          ExpectSums(PlanOf(*model, request));
          request.reshard_after_forward = false;
          ExpectSums(PlanOf(*model, request));
        }
      }
    }
  }
}

TEST(Textbook, DifferencesSumWithoutMixedPrecisionAndWithoutAnOptimizer) {
  const pb::Model tree = TreeModel({.blocks = 4, .dim = 24, .vocab = 50});
  for (const int world : {1, 2, 5}) {
    PlanRequest request = Request(world);
    request.param_dtype.reset();
    request.reduce_dtype.reset();
    ExpectSums(PlanOf(tree, request));
    request.root_reshard_after_forward = true;
    ExpectSums(PlanOf(tree, request));
    request.optimizer = "none";
    ExpectSums(PlanOf(tree, request));
    request.optimizer = "sgd";
    ExpectSums(PlanOf(tree, request));
    request.momentum = 0.9;
    ExpectSums(PlanOf(tree, request));
    request.original_dtype = DType::kBf16;
    request.param_dtype = DType::kBf16;
    ExpectSums(PlanOf(tree, request));
  }
}

// dim 64 on two ranks: w1 and w2 of both blocks have 8192 elements each, all else keeps fp32.
TEST(Textbook, MomentsInEightBitsAndInAnotherDType) {
  const pb::Model tree = TreeModel({.blocks = 2, .dim = 64, .vocab = 50});
  PlanRequest request = Request(2);
  request.state_dtype = DType::kBf16;
  pb::Plan plan = PlanOf(tree, request);
  ExpectSums(plan);
  const int64_t parameters = plan.header().parameter_count();
  EXPECT_EQ(Terms(TextbookOf(plan)).at("moments of the optimizer in another dtype, one or none"),
            (4 - 8) * parameters / 2);
  request.state_dtype.reset();
  request.optimizer = "adamw8bit";
  plan = PlanOf(tree, request);
  ExpectSums(plan);
  const int64_t small = parameters / 2 - 4 * 8192;  // of a rank, kept in fp32: 8 bytes, not 2
  const int64_t beside = 4 * 2 * (8192 / 256 * 4 + 1024) + small * (8 - 2);
  const auto terms = Terms(TextbookOf(plan));
  EXPECT_EQ(terms.at("8-bit moments: their scales and tables, and small tensors in full"), beside);
  EXPECT_EQ(terms.at("step counters of the optimizer"), 4 * int64_t{plan.parameters_size()});
}

TEST(Textbook, DifferencesSumForLlama) {
  const pb::Model model = LoadModel("tiny-llama-1.1b").value();
  for (const char* wrap : {"block", "titan", "every:4", "whole"}) {
    SCOPED_TRACE(wrap);
    PlanRequest request = Request(6, wrap);
    request.seq = 128;
    ExpectSums(PlanOf(model, request));
  }
}

TEST(Textbook, WithoutResharding) {
  PlanRequest request = Request(4);
  request.reshard_after_forward = false;
  request.root_reshard_after_forward = false;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 4, .dim = 24, .vocab = 10}), request);
  const pb::Textbook t = TextbookOf(plan);
  // Nothing is freed and gathered again, so U is the largest unit.
  EXPECT_EQ(t.unit_parameters(), 8 * 24 * 24 + 2 * 24);
  EXPECT_THAT(Terms(t), Contains(Key("units kept gathered, as the root")));
}

}  // namespace
}  // namespace foreshard
