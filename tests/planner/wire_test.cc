// Bytes on the wire of a step against closed formulas, by collective and group. The model has no
// shape that 4 ranks do not divide, so nothing is padded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "proto/report.pb.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

constexpr int64_t kBlock = 2 * 8 + 4 * 8 * 8 + 4 * 8 * 8;  // norm, w1, w2
constexpr int64_t kRoot = 16 * 8 + 2 * 8 + 16 * 8;         // embedding, norm, head
constexpr int64_t kAll = 2 * kBlock + kRoot;
constexpr int64_t kFp32 = 4;

struct Wire {
  int64_t payload = 0;
  int64_t sent = 0;
  bool operator==(const Wire&) const = default;
};

void PrintTo(const Wire& wire, std::ostream* out) {
  *out << "payload " << wire.payload << ", sent " << wire.sent;
}

// What a ring of `ranks` sends of a payload that they divide.
Wire Ring(int64_t payload, int64_t ranks) { return {payload, payload / ranks * (ranks - 1)}; }

// By kind and group, over all phases of a steady step.
std::map<std::string, Wire> WireOf(const PlanRequest& request) {
  const pb::Model model = TreeModel({.blocks = 2, .dim = 8, .vocab = 16});
  const pb::Report report = ReportOf(PlanOf(model, request));
  std::map<std::string, Wire> wire;
  for (const pb::CollectiveTotal& total : report.collectives()) {
    Wire& sum = wire[total.kind() + " " + total.group()];
    sum.payload += total.payload_bytes();
    sum.sent += total.wire_bytes();
  }
  return wire;
}

TEST(Wire, AStepGathersTwiceAndReducesOnce) {
  // All but the root are gathered again in backward.
  EXPECT_THAT(WireOf(SmallRequest(4)),
              UnorderedElementsAre(Pair("all_gather shard", Ring((2 * kAll - kRoot) * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
}

TEST(Wire, KeptParametersAreGatheredOnce) {
  PlanRequest request = SmallRequest(4);
  request.reshard_after_forward = false;
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring(kAll * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
}

TEST(Wire, PartsOfAGroupGatherAmongThemselvesInBackward) {
  PlanRequest request = SmallRequest(4);
  request.reshard_after_forward = Reshard::Groups(2);
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring(kAll * kFp32, 4)),
                                   Pair("all_gather shard_2", Ring(2 * kBlock * kFp32, 2)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
}

TEST(Wire, ReplicasReduceTheirShardsAndThatCountsTwice) {
  PlanRequest request = SmallRequest(8);
  request.replicate_size = 2;
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring((2 * kAll - kRoot) * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4)),
                                   Pair("all_reduce replicate", Ring(2 * kAll / 4 * kFp32, 2))));
}

TEST(Wire, GathersAreInTheComputeDtypeAndReductionsInTheirs) {
  PlanRequest request = SmallRequest(4);
  request.param_dtype = DType::kBf16;
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring((2 * kAll - kRoot) * 2, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
}

TEST(Wire, WithoutSyncGradientsTravelOnceInAStep) {
  PlanRequest request = SmallRequest(4);
  request.micro_batches.count = 3;
  request.micro_batches.reduce = false;
  EXPECT_THAT(WireOf(request),
              testing::Contains(Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
  request.micro_batches.reduce = true;
  EXPECT_THAT(WireOf(request),
              testing::Contains(Pair("reduce_scatter shard", Ring(3 * kAll * kFp32, 4))));
}

TEST(Wire, DdpAllReducesEveryGradientOnce) {
  PlanRequest request = SmallRequest(4);
  request.strategy = "ddp";
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_reduce replicate", Ring(2 * kAll * kFp32, 4))));
}

// FSDP1 frees the root as well after forward, but never gathers what backward needs at once: the
// root's parameters are kept.
TEST(Wire, StrategiesOfFsdp1) {
  PlanRequest request = SmallRequest(4);
  request.strategy = "full_shard";
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring((2 * kAll - kRoot) * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
  request.strategy = "shard_grad_op";
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring(kAll * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4))));
  request.strategy = "no_shard";
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_reduce replicate", Ring(2 * kAll * kFp32, 4))));
}

TEST(Wire, HybridsReduceAmongReplicasToo) {
  PlanRequest request = SmallRequest(8);
  request.strategy = "hybrid_shard";
  request.replicate_size = 2;
  EXPECT_THAT(WireOf(request),
              UnorderedElementsAre(Pair("all_gather shard", Ring((2 * kAll - kRoot) * kFp32, 4)),
                                   Pair("reduce_scatter shard", Ring(kAll * kFp32, 4)),
                                   Pair("all_reduce replicate", Ring(2 * kAll / 4 * kFp32, 2))));
}

}  // namespace
}  // namespace foreshard
