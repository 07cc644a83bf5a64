// What textbooks promise of every step, asked of simulated ones.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>

#include "planner/model_source.h"
#include "proto/report.pb.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

int64_t BytesOf(const pb::PhaseMemory& phase, pb::Category category) {
  for (const pb::CategoryBytes& c : phase.end_by_category()) {
    if (c.category() == category) return c.bytes();
  }
  return 0;
}

// Bytes of each unit, gathered.
std::map<int, int64_t> GatherBytes(const pb::Plan& plan) {
  std::map<int, int64_t> bytes;
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (op.has_copy_out()) bytes[op.unit()] = plan.buffers(op.in(0)).bytes();
    }
  }
  if (plan.mesh().shard_size() > 1) return bytes;
  const int64_t element = plan.decisions().param_dtype() == pb::FP32 ? 4 : 2;
  for (int u = 0; u < plan.units_size(); ++u) bytes[u] = plan.units(u).numel() * element;
  return bytes;
}

std::map<int, int64_t> AliveByUnit(const pb::Plan& plan, const Moment& m, pb::Category category) {
  std::map<int, int64_t> bytes;
  for (int b = 0; b < plan.buffers_size(); ++b) {
    const pb::Buffer& buffer = plan.buffers(b);
    if (!(*m.alive)[static_cast<size_t>(b)] || buffer.category() != category) continue;
    bytes[buffer.unit()] += buffer.bytes();
  }
  return bytes;
}

// What may be gathered at once: units kept so far, one unit in use, and gather outputs: one on its
// way and one just copied out. Torch 2.15 drops the latter before the next copy-out, 2.14 after it;
// in backward an output goes with its own copy-out. So all three are there at a copy-out of 2.14
// alone.
void ExpectWindow(const pb::Plan& plan) {
  const std::map<int, int64_t> whole = GatherBytes(plan);
  const bool keeps_previous = plan.decisions().torch() == "2.14";
  WalkPlan(plan, [&](const Moment& m) {
    const auto outputs = AliveByUnit(plan, m, pb::AG_OUTPUT);
    const auto parameters = AliveByUnit(plan, m, pb::UNSHARDED_PARAM);
    size_t in_use = 0;
    for (const auto& [unit, bytes] : parameters) {
      // A unit is gathered and freed as a whole, but one rank copies parameter by parameter.
      const bool copying = plan.mesh().shard_size() == 1 && m.op->has_unit() &&
                           m.op->unit() == unit &&
                           (m.op->has_cast_shard() || m.op->has_local_gather());
      if (!copying) {
        EXPECT_EQ(bytes, whole.at(unit));
      }
      if (plan.units(unit).reshard_after_forward()) ++in_use;
    }
    for (const auto& [unit, bytes] : outputs) EXPECT_EQ(bytes, whole.at(unit));
    EXPECT_LE(in_use, 1u);
    EXPECT_LE(outputs.size(), m.op->phase() == pb::BACKWARD ? 1u : 2u);
    if (m.op->has_copy_out()) {
      EXPECT_LE(outputs.size(), keeps_previous ? 2u : 1u);
    } else if (!m.op->has_release()) {
      EXPECT_LE(in_use + outputs.size(), 2u) << "three only from a copy-out to its release";
    }
  });
}

// Between steps a rank holds its shards and its share of the optimizer's state, and nothing else of
// the sharding.
void ExpectOnlyStateAfterZeroGrad(const pb::Plan& plan) {
  const pb::Report report = ReportOf(plan);
  int64_t shards = 0;
  for (const int b : plan.resident()) {
    if (plan.buffers(b).category() == pb::SHARDED_PARAM) shards += plan.buffers(b).bytes();
  }
  const int64_t padded = std::accumulate(
      plan.units().begin(), plan.units().end(), int64_t{0},
      [](int64_t sum, const pb::Unit& unit) { return sum + unit.padded_shard_numel(); });
  EXPECT_EQ(shards, padded * (plan.decisions().original_dtype() == pb::FP32 ? 4 : 2));
  for (const char* program : {"first", "steady"}) {
    const pb::PhaseMemory& end = PhaseOf(report, program, pb::ZERO_GRAD);
    for (const pb::CategoryBytes& c : end.end_by_category()) {
      const bool lives = c.category() == pb::SHARDED_PARAM || c.category() == pb::INPUT ||
                         c.category() == pb::OPTIMIZER_STATE || c.category() == pb::WORKSPACE ||
                         c.category() == pb::MODULE_BUFFER;
      EXPECT_TRUE(lives) << program << ": " << pb::Category_Name(c.category());
    }
    EXPECT_EQ(BytesOf(end, pb::SHARDED_PARAM), shards);
    EXPECT_LE(BytesOf(end, pb::OPTIMIZER_STATE), 2 * shards + 4 * plan.parameters_size());
  }
}

class StepInvariants : public testing::TestWithParam<std::string> {};

TEST_P(StepInvariants, Hold) {
  const pb::Model tree = TreeModel({.blocks = 5, .dim = 24, .vocab = 50});
  for (const int world : {1, 2, 3, 8}) {
    for (const char* torch : {"2.14", "2.15"}) {
      for (const std::optional<Reshard> reshard : {std::optional<Reshard>(), {false}}) {
        SCOPED_TRACE(testing::Message() << world << " ranks, torch " << torch);
        PlanRequest request;
        request.world_size = world;
        request.seq = 8;
        request.wrap = GetParam();
        request.torch = torch;
        request.reshard_after_forward = reshard;
        const pb::Plan plan = PlanOf(tree, request);
        ExpectWindow(plan);
        ExpectOnlyStateAfterZeroGrad(plan);
        request.param_dtype.reset();
        ExpectWindow(PlanOf(tree, request));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wraps, StepInvariants,
                         testing::Values("block", "every:2", "every:3", "whole"));

TEST(StepInvariantsOfLlama, Hold) {
  for (const char* wrap : {"block", "titan"}) {
    PlanRequest request;
    request.world_size = 6;
    request.seq = 64;
    request.wrap = wrap;
    const pb::Plan plan = PlanOf(LoadModel("tiny-llama-1.1b").value(), request);
    ExpectWindow(plan);
    ExpectOnlyStateAfterZeroGrad(plan);
  }
}

}  // namespace
}  // namespace foreshard
