// Plans whose first steps differ from each other and from the steady one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/simulate.h"
#include "tests/testing/parse.h"
#include "tests/testing/two_unit_plan.h"

namespace foreshard {
namespace {

using sim::kRoundCluster;
using sim::kTwoUnitPlan;

// Of each program one step counts for memory, and the last is the one whose time is told.
TEST(Simulate, StepsBeforeTheSteadyOneHaveMemoryOfTheirOwn) {
  auto plan = ParseOrDie<pb::Plan>(kTwoUnitPlan);
  pb::Segment& extra = *plan.add_segments();
  extra.set_name("extra");
  pb::Op& op = *extra.add_ops();
  op.set_phase(pb::FORWARD);
  op.mutable_release();
  op.add_allocs(plan.buffers_size());
  op.add_frees(plan.buffers_size());
  plan.add_buffers()->set_category(pb::TEMP);
  plan.mutable_buffers()->rbegin()->set_bytes(5000);
  const pb::Program steady = plan.programs(1);
  pb::Program& warmup = *plan.mutable_programs(1);
  warmup.set_name("warmup");
  warmup.add_uses()->set_segment(3);
  warmup.mutable_uses()->rbegin()->set_repeat(1);
  *plan.add_programs() = steady;

  const pb::Report report = Simulate(plan, ParseOrDie<pb::Cluster>(kRoundCluster)).value();
  EXPECT_EQ(report.timing().step_ps(), 14255);
  // Between steps there are shards, inputs and optimizer state: 560 + 64 + 1120.
  EXPECT_EQ(report.peak().bytes(), 5000 + 560 + 64 + 1120);
  EXPECT_EQ(report.peak().at().program(), "warmup");
  std::vector<std::string> programs;
  for (const pb::PhaseMemory& phase : report.phases()) {
    if (programs.empty() || programs.back() != phase.program()) programs.push_back(phase.program());
  }
  EXPECT_THAT(programs, testing::ElementsAre("first", "warmup", "steady"));
}

}  // namespace
}  // namespace foreshard
