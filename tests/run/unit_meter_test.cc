#include "proto/run/unit_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/run/step_meter.h"
#include "sim/engine.h"
#include "tests/testing/parse.h"
#include "tests/testing/tiny_plan.h"

namespace foreshard::run {
namespace {

struct Measured {
  std::vector<std::vector<run::UnitTime>> units;
  std::vector<run::StepTime> steps;
};

// Runs the plan's only segment `count` times. `units` are those of its ops and `owners` those of
// its buffers; -1 = none. (Ops of a sim::TinyPlan carry their times where a plan has the unit.)
Measured Measure(const sim::TinyPlan& tiny, const std::vector<int>& units,
                 const std::vector<int>& owners, int count) {
  sim::TinyPlan timed = tiny;
  timed.AddProgram({{0, 1}});
  const run::Program program = timed.Compiled();
  pb::Plan plan = timed.plan();
  plan.add_units();
  plan.add_units();
  for (size_t i = 0; i < units.size(); ++i) {
    pb::Op& op = *plan.mutable_segments(0)->mutable_ops(static_cast<int>(i));
    op.clear_unit();
    if (units[i] >= 0) op.set_unit(units[i]);
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] >= 0) plan.mutable_buffers(static_cast<int>(i))->set_unit(owners[i]);
  }
  run::UnitMeter meter(plan, program);
  run::StepMeter step_meter(program);
  run::Listener* const listeners[] = {&meter, &step_meter};
  const std::vector<run::ProgramId> steps(static_cast<size_t>(count), run::ProgramId{0});
  sim::Engine(program, listeners).Run(steps);
  return {meter.steps(), step_meter.steps()};
}

TEST(UnitMeter, TimesGoToTheUnitOfTheCollective) {
  // Compute 0 to 6; unit 1 gathers 0 to 10, unit 0 from 10 to 13.
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 0, .device = 6});
  plan.Add({.stream = 1, .device = 10, .group = 0});
  plan.Add({.stream = 1, .device = 3, .group = 0});
  const auto units = Measure(plan, {-1, 1, 0}, {}, 1).units[0];
  EXPECT_EQ(units[1].gather.count, 1);
  EXPECT_EQ(units[1].gather.running, SimTime(10));
  EXPECT_EQ(units[1].gather.exposed, SimTime(4));
  EXPECT_EQ(units[0].gather.running, SimTime(3));
  EXPECT_EQ(units[0].gather.exposed, SimTime(3));
  EXPECT_EQ(units[0].reduce.count, 0);
}

TEST(UnitMeter, SideBySideTheEarlierCollectiveIsTheExposedOne) {
  // Unit 0 gathers 0 to 5 and unit 1 from 0 to 7: the last 2 are unit 1's.
  sim::TinyPlan plan(3, 2);
  plan.Add({.stream = 1, .device = 5, .group = 0});
  plan.Add({.stream = 2, .device = 7, .group = 1});
  const Measured measured = Measure(plan, {0, 1}, {}, 1);
  const auto& units = measured.units[0];
  EXPECT_EQ(units[0].gather.running + units[1].gather.running, SimTime(12));
  EXPECT_EQ(units[0].gather.exposed, SimTime(5));
  EXPECT_EQ(units[1].gather.exposed, SimTime(2));
  EXPECT_EQ(measured.steps[0].exposed_communication, SimTime(7));
}

TEST(UnitMeter, WhatTheNextStepStartsEarlyCountsWhereItRuns) {
  // Nothing holds the gather back: in step 0 it runs from 0 to 4 and again from 4 to 8, then waits
  // for nothing; compute takes 10 a step. Counts stay with the step that issued them.
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 1, .device = 4, .group = 0});
  plan.Add({.stream = 0, .device = 10});
  const Measured measured = Measure(plan, {0, -1}, {}, 2);
  EXPECT_EQ(measured.units[0][0].gather.running, SimTime(8));
  EXPECT_EQ(measured.units[1][0].gather.running, SimTime(0));
  EXPECT_EQ(measured.units[0][0].gather.count, 1);
  EXPECT_EQ(measured.units[1][0].gather.count, 1);
  EXPECT_EQ(measured.units[0][0].gather.running, measured.steps[0].communication_busy);
}

TEST(UnitMeter, AUnitIsResidentWhileAnyOfItsParametersIs) {
  // Host: 0 to 3, 3 to 5, 5 to 9. The first buffer lives 0 to 5, the second 3 to 9.
  sim::TinyPlan plan(1, 0);
  const int a = plan.Buffer(1, pb::UNSHARDED_PARAM);
  const int b = plan.Buffer(1, pb::UNSHARDED_PARAM);
  const int other = plan.Buffer(1, pb::ACTIVATION);
  plan.Add({.host = 3, .allocs = {a}});
  plan.Add({.host = 2, .allocs = {b, other}, .frees = {a}});
  plan.Add({.host = 4, .frees = {b}});
  plan.Add({.host = 7, .frees = {other}});
  const auto units = Measure(plan, {-1, -1, -1, -1}, {0, 0, 1}, 1).units[0];
  EXPECT_EQ(units[0].resident, SimTime(9));
  EXPECT_EQ(units[1].resident, SimTime(0)) << "activations are no parameters";
}

TEST(UnitMeter, ParametersThatOutliveAStepAreCutAtItsEnd) {
  // Never freed; the host takes 5 a step.
  sim::TinyPlan plan(1, 0);
  const int kept = plan.Buffer(1, pb::UNSHARDED_PARAM, /*resident=*/true);
  plan.Add({.host = 5});
  const auto units = Measure(plan, {-1}, {1}, 3).units;
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(units[0][1].resident, SimTime(5));
  EXPECT_EQ(units[1][1].resident, SimTime(5));
}

TEST(UnitMeter, AllReducesAreApartFromReductions) {
  // Unit 0 reduces over its shards 0 to 5 and over the replicas 5 to 9; unit 1's norms are
  // nobody's.
  const auto op = [](const char* text) { return ParseOrDie<pb::Op>(text); };
  pb::Plan plan = ParseOrDie<pb::Plan>(R"pb(
    units { name: "a" }
    streams { name: "reduce" role: REDUCE }
    groups { size: 2 stride: 1 }
    groups { size: 2 stride: 2 }
    segments { name: "step" }
    programs {
      name: "first"
      uses { segment: 0 repeat: 1 }
    }
  )pb");
  pb::Segment& step = *plan.mutable_segments(0);
  *step.add_ops() = op("stream: 0 unit: 0 phase: BACKWARD reduce_scatter { group: 0 }");
  *step.add_ops() = op("stream: 0 unit: 0 phase: BACKWARD all_reduce { group: 1 }");
  *step.add_ops() = op("stream: 0 phase: CLIP all_reduce { group: 0 }");
  run::Program program = run::Flatten(plan);
  for (const auto& [position, time] : {std::pair(0, 5), std::pair(1, 4), std::pair(2, 1)}) {
    program.ops[static_cast<size_t>(position)].device = SimTime(time);
  }
  run::UnitMeter meter(plan, program);
  run::Listener* const listeners[] = {&meter};
  sim::Engine(program, listeners).Run(std::vector<run::ProgramId>{run::ProgramId{0}});
  const run::UnitTime unit = meter.steps()[0][0];
  EXPECT_EQ(unit.reduce.count, 1);
  EXPECT_EQ(unit.reduce.running, SimTime(5));
  EXPECT_EQ(unit.all_reduce.count, 1);
  EXPECT_EQ(unit.all_reduce.running, SimTime(4));
  EXPECT_EQ(unit.all_reduce.exposed, SimTime(4));
}

}  // namespace
}  // namespace foreshard::run
