// The arithmetic of "One step worked out by hand" in docs/design.md.
#include <gtest/gtest.h>

#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"

namespace foreshard {
namespace {

constexpr int64_t kP = 6738415616;  // parameters
constexpr int64_t kU = 202383360;   // of a block
constexpr int64_t kR = 262148096;   // of the root: embedding, norm, head
constexpr int kRanks = 8;

TEST(HandWorkedStep, LlamaTwoSevenB) {
  ASSERT_EQ(kP, 32 * kU + kR);
  auto model = LoadModel(FORESHARD_SOURCE_DIR "/tests/data/models/llama-2-7b.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  PlanRequest request;
  request.world_size = kRanks;
  request.seq = 2048;
  auto plan = MakePlan(*model, request);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  auto report = Simulate(*plan, *LoadCluster("dgx-a100-80g"));
  ASSERT_TRUE(report.ok()) << report.status().message();

  const int64_t sharded = 4 * kP / kRanks;
  const int64_t adamw = 8 * kP / kRanks + 4 * 291;
  EXPECT_EQ(sharded, 3369207808);
  EXPECT_EQ(adamw, 6738416780);
  const int64_t forward_peak = sharded + adamw + 2 * kR + 2 * kR + 2 * kU / kRanks + 2 * kU;
  EXPECT_EQ(forward_peak, 11611579532);
  bool seen = false;
  for (const pb::PhaseMemory& phase : report->phases()) {
    if (phase.program() != "steady" || phase.phase() != pb::FORWARD) continue;
    seen = true;
    EXPECT_EQ(phase.managed_peak_bytes(), forward_peak);
  }
  EXPECT_TRUE(seen);

  int64_t others = 0;  // inputs, tables, what libraries keep
  for (const int b : plan->resident()) {
    if (plan->buffers(b).category() != pb::SHARDED_PARAM) others += plan->buffers(b).bytes();
  }
  EXPECT_EQ(report->fit().persistent_bytes(), sharded + adamw + others);

  int64_t gathered = 0;
  int64_t reduced = 0;
  int64_t gathers = 0;
  for (const pb::CollectiveTotal& total : report->collectives()) {
    if (total.kind() == "all_gather") {
      gathered += total.wire_bytes();
      gathers += total.count();
    } else {
      reduced += total.wire_bytes();
      EXPECT_EQ(total.count(), 33);
    }
  }
  EXPECT_EQ(gathers, 33 + 32);
  EXPECT_EQ(gathered, 7 * 2 * (2 * kP - kR) / 8);
  EXPECT_EQ(reduced, 7 * 4 * kP / 8);
}

}  // namespace
}  // namespace foreshard
