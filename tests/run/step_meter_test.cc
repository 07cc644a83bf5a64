#include "proto/run/step_meter.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/engine.h"
#include "tests/testing/tiny_plan.h"

namespace foreshard::run {
namespace {

// Steps of the plan's only segment, run `count` times.
std::vector<run::StepTime> Measure(const sim::TinyPlan& tiny, int count) {
  sim::TinyPlan plan = tiny;
  plan.AddProgram({{0, 1}});
  const run::Program program = plan.Compiled();
  run::StepMeter meter(program);
  run::Listener* const listeners[] = {&meter};
  const std::vector<run::ProgramId> steps(static_cast<size_t>(count), run::ProgramId{0});
  sim::Engine(program, listeners).Run(steps);
  return meter.steps();
}

TEST(StepMeter, CommunicationBehindComputeIsNotExposed) {
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 0, .device = 10});
  plan.Add({.stream = 1, .device = 4, .group = 0});
  const run::StepTime step = Measure(plan, 1)[0];
  EXPECT_EQ(step.duration, SimTime(10));
  EXPECT_EQ(step.compute_busy, SimTime(10));
  EXPECT_EQ(step.communication_busy, SimTime(4));
  EXPECT_EQ(step.exposed_communication, SimTime(0));
}

TEST(StepMeter, WhatComputeDoesNotCoverIsExposed) {
  // Compute 0 to 6, gather 0 to 10, compute 10 to 12.
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 0, .device = 6});
  plan.Add({.stream = 1, .device = 10, .group = 0});
  plan.Add({.stream = 0, .device = 2, .waits = {1}});
  const run::StepTime step = Measure(plan, 1)[0];
  EXPECT_EQ(step.duration, SimTime(12));
  EXPECT_EQ(step.compute_busy, SimTime(8));
  EXPECT_EQ(step.exposed_communication, SimTime(4));
}

TEST(StepMeter, CollectivesSideBySideCountOnce) {
  sim::TinyPlan plan(3, 2);
  plan.Add({.stream = 1, .device = 5, .group = 0});
  plan.Add({.stream = 2, .device = 7, .group = 1});
  const run::StepTime step = Measure(plan, 1)[0];
  EXPECT_EQ(step.communication_busy, SimTime(7));
  EXPECT_EQ(step.exposed_communication, SimTime(7));
}

TEST(StepMeter, CopiesOnOtherStreamsAreNeither) {
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 1, .device = 5});
  const run::StepTime step = Measure(plan, 1)[0];
  EXPECT_EQ(step.duration, SimTime(5));
  EXPECT_EQ(step.compute_busy, SimTime(0));
  EXPECT_EQ(step.communication_busy, SimTime(0));
}

TEST(StepMeter, PhasesAreCountedFromTheEndOfTheOpBefore) {
  // Forward 3; backward waits for a copy until 8, then runs 2.
  sim::TinyPlan plan(2, 1);
  plan.Add({.stream = 0, .device = 3, .phase = pb::FORWARD});
  plan.Add({.stream = 1, .device = 8, .phase = pb::BACKWARD});
  plan.Add({.stream = 0, .device = 2, .waits = {1}, .phase = pb::BACKWARD});
  const run::StepTime step = Measure(plan, 1)[0];
  EXPECT_EQ(step.phases[pb::FORWARD], SimTime(3));
  EXPECT_EQ(step.phases[pb::BACKWARD], SimTime(7));
  EXPECT_EQ(step.phases[pb::OPTIMIZER], SimTime(0));
}

TEST(StepMeter, StepsAreMeasuredFromEndToEnd) {
  sim::TinyPlan plan(1, 0);
  plan.Add({.host = 2, .device = 5});
  const std::vector<run::StepTime> steps = Measure(plan, 3);
  EXPECT_EQ(steps[0].duration, SimTime(7));  // the first launch is not hidden
  EXPECT_EQ(steps[1].duration, SimTime(5));
  EXPECT_EQ(steps[2].duration, SimTime(5));
  EXPECT_EQ(steps[2].host_busy, SimTime(2)) << "though it was issued long before";
}

TEST(StepMeter, ClippingAndTheHostsWorkHaveTheirTimeInThePhases) {
  // Compute 0 to 4 and 4 to 7, then the host's stream to 12.
  sim::TinyPlan plan(2, 0);
  plan.Add({.stream = 0, .device = 4, .phase = pb::BACKWARD});
  plan.Add({.stream = 0, .device = 3, .phase = pb::CLIP});
  plan.Add({.stream = 1, .device = 5, .waits = {1}, .phase = pb::OPTIMIZER});
  plan.AddProgram({{0, 1}});
  run::Program program = plan.Compiled();
  program.is_host_stream[1] = true;
  run::StepMeter meter(program);
  run::Listener* const listeners[] = {&meter};
  sim::Engine(program, listeners).Run(std::vector<run::ProgramId>{run::ProgramId{0}});
  const run::StepTime step = meter.steps()[0];
  EXPECT_EQ(step.compute_busy, SimTime(7));
  EXPECT_EQ(step.phases[pb::BACKWARD], SimTime(4));
  EXPECT_EQ(step.phases[pb::CLIP], SimTime(3));
  EXPECT_EQ(step.phases[pb::OPTIMIZER], SimTime(5));
}

}  // namespace
}  // namespace foreshard::run
