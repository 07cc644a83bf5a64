// What the plan's rules take for certain about communicators is what the simulator does.
#include <gtest/gtest.h>

#include "proto/happens_before.h"
#include "proto/plan.pb.h"
#include "tests/testing/parse.h"
#include "tests/testing/schedule_recorder.h"

namespace foreshard {
namespace {

// Two collectives on two streams; both groups have the same ranks.
pb::Plan Collectives(std::string_view first, std::string_view second) {
  auto plan = ParseOrDie<pb::Plan>(R"pb(
    streams { name: "a" role: GATHER }
    streams { name: "b" role: REDUCE }
    groups { name: "shard" size: 2 stride: 1 }
    groups { name: "again" size: 2 stride: 1 }
    segments { name: "step" }
    programs {
      name: "first"
      uses { segment: 0 repeat: 1 }
    }
  )pb");
  *plan.mutable_segments(0)->add_ops() = ParseOrDie<pb::Op>(first);
  *plan.mutable_segments(0)->add_ops() = ParseOrDie<pb::Op>(second);
  return plan;
}

bool IsOrderedByRule(const pb::Plan& plan) {
  HappensBefore order(plan);
  order.BeginSegment(0, 0);
  order.Issue(0);
  const HappensBefore::Point first = order.last();
  order.Issue(1);
  return order.HasEnded(first);
}

bool IsOrderedInSimulation(const pb::Plan& plan) {
  run::Program program = run::Flatten(plan);
  for (run::OpRecord& op : program.ops) op.device = SimTime(10);
  const sim::RecordedRun run = sim::RunRecorded(program, {0});
  return run.schedule.ops[1].started >= run.schedule.ops[0].ended;
}

TEST(Communicators, ThoseOfTheSameRanksAreApart) {
  const char* gather = "stream: 0 all_gather { group: 0 }";
  const std::pair<const char*, bool> others[] = {
      {"stream: 1 all_gather { group: 0 }", true},
      {"stream: 1 all_gather { group: 1 }", false},
      {"stream: 1 reduce_scatter { group: 0 }", true},
      {"stream: 1 reduce_scatter { group: 1 }", false},
      {"stream: 1 all_reduce { group: 0 }", true},
      {"stream: 1 all_reduce { group: 1 }", false},
      {"stream: 1 divide {}", false},
  };
  for (const auto& [other, ordered] : others) {
    const pb::Plan plan = Collectives(gather, other);
    EXPECT_EQ(IsOrderedByRule(plan), ordered) << other;
    EXPECT_EQ(IsOrderedInSimulation(plan), ordered) << other;
  }
}

}  // namespace
}  // namespace foreshard
