// DistributedDataParallel and ZeroRedundancyOptimizer as plans: buckets, their rebuild, who updates
// what; and the comparison that the strategies are there for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "planner/lower/zero1.h"
#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/base/units.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"

namespace foreshard {
namespace {

constexpr int64_t kLlama7b = 6'738'415'616;  // parameters

pb::Plan PlanOf(const std::string& model, const std::string& strategy, int world) {
  PlanRequest request;
  request.world_size = world;
  request.seq = 128;
  request.strategy = strategy;
  StatusOr<pb::Plan> plan = MakePlan(LoadModel(model).value(), request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

template <typename Visit>
void ForEachOp(const pb::Plan& plan, const std::string& program_name, Visit visit) {
  for (const pb::Program& program : plan.programs()) {
    if (program.name() != program_name) continue;
    for (const pb::SegmentUse& use : program.uses()) {
      for (const pb::Op& op : plan.segments(use.segment()).ops()) visit(op);
    }
  }
}

std::vector<int64_t> BytesReduced(const pb::Plan& plan, const std::string& program) {
  std::vector<int64_t> bytes;
  ForEachOp(plan, program, [&](const pb::Op& op) {
    if (op.has_all_reduce()) bytes.push_back(4 * op.all_reduce().elems());
  });
  return bytes;
}

// The first step reduces everything at once; later ones in buckets that are full at 1 MiB and then
// at 25 MiB, so that only the last may have less.
TEST(Ddp, BucketsAreRebuiltAfterTheFirstStep) {
  const pb::Plan plan = PlanOf("gpt2", "ddp", 8);
  ASSERT_EQ(plan.programs_size(), 3);
  int64_t all = 0;
  for (const pb::Parameter& p : plan.parameters()) all += 4 * p.padded_shard_numel();
  EXPECT_EQ(BytesReduced(plan, "first"), std::vector<int64_t>{all});
  const std::vector<int64_t> buckets = BytesReduced(plan, "steady");
  EXPECT_EQ(BytesReduced(plan, "warmup"), buckets);
  ASSERT_GT(buckets.size(), 2u);
  EXPECT_GE(buckets[0], int64_t{1} << 20);
  for (size_t i = 1; i + 1 < buckets.size(); ++i) EXPECT_GE(buckets[i], int64_t{25} << 20);
  EXPECT_EQ(std::accumulate(buckets.begin(), buckets.end(), int64_t{0}), all);
}

// Sizes 9 7 5 5 2 on 3 ranks: 9 to rank 0, 7 to 1, 5 to 2, the second 5 to 2 (which has least), 2
// to 1.
TEST(Zero1, PartitionsFromTheLargestOnToTheRankWithLeast) {
  const int64_t sizes[] = {5, 9, 2, 7, 5};
  const Partition partition = PartitionBySize(sizes, 3);
  EXPECT_EQ(partition.owners, (std::vector<int>{2, 0, 1, 1, 2}));
  EXPECT_EQ(partition.order, (std::vector<int>{1, 3, 2, 0, 4}));
}

// Each parameter's state, 8 bytes an element and a count, is on one rank; all of it is somewhere.
TEST(Zero1, StateIsOnTheRankThatUpdates) {
  const pb::Plan plan = PlanOf("gpt2", "zero1", 4);
  int64_t elements = 0;
  for (const pb::Parameter& p : plan.parameters()) elements += p.padded_shard_numel();
  int64_t state = 0;
  for (const pb::Buffer& b : plan.buffers()) {
    if (b.category() != pb::OPTIMIZER_STATE) continue;
    state += b.bytes();
    for (const pb::RankBytes& other : b.others()) {
      EXPECT_TRUE(b.bytes() == 0 || other.bytes() == 0);
      state += other.bytes();
    }
    // What rank 0 has, the three others are listed to have nothing of.
    EXPECT_EQ(b.others_size(), b.bytes() > 0 ? 3 : 1);
  }
  EXPECT_EQ(state, 8 * elements + 4 * plan.parameters_size());
  int broadcasts = 0;
  ForEachOp(plan, "steady", [&](const pb::Op& op) { broadcasts += op.has_broadcast(); });
  EXPECT_EQ(broadcasts, plan.parameters_size());
}

pb::Report Predict(const std::string& strategy) {
  PlanRequest request;
  request.world_size = 8;
  request.seq = 2048;
  request.strategy = strategy;
  const pb::Plan plan = MakePlan(LoadModel("llama-2-7b").value(), request).value();
  EXPECT_TRUE(CheckPlan(plan).ok());
  return Simulate(plan, LoadCluster("dgx-a100-80g").value()).value();
}

// Why anybody shards: with all of the state on every rank, 16 bytes a parameter (itself, its
// gradient and AdamW's two moments in fp32) are 107.8 GB, more than a GPU of 80 GB has, whatever
// the activations; an eighth of it is 13.5 GB.
TEST(Ddp, LlamaOnEightGpusFitsOnlySharded) {
  const pb::Report ddp = Predict("ddp");
  EXPECT_GT(ddp.peak().bytes(), 16 * kLlama7b);
  EXPECT_FALSE(ddp.fit().fits());
  EXPECT_TRUE(Predict("fsdp2").fit().fits());
  EXPECT_TRUE(Predict("full_shard").fit().fits());
}

}  // namespace
}  // namespace foreshard
