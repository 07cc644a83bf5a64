// How many ops a second the simulator gets through. Sizes: a plan of 10,000 ops is a step of about
// 100 blocks.
#include <benchmark/benchmark.h>

#include <vector>

#include "proto/run/memory_recorder.h"
#include "proto/run/step_meter.h"
#include "sim/engine.h"
#include "sim/invariants.h"
#include "tests/testing/tiny_plan.h"

namespace foreshard::sim {
namespace {

constexpr int kBlocks = 500;
constexpr int kKernelsPerBlock = 15;

// Per block: two copies and a gather ahead of time, a copy out, kernels with their temporaries, a
// copy and a reduction behind. 20 ops a block.
TinyPlan BlockPlan() {
  TinyPlan plan(4, 1);
  const int gathered = plan.Buffer(1000);
  const int output = plan.Buffer(1000);
  const int temp = plan.Buffer(10);
  for (int block = 0; block < kBlocks; ++block) {
    const int cast = plan.Add({.stream = 1, .host = 5, .device = 20});
    const int copy = plan.Add({.stream = 1, .host = 5, .device = 20, .allocs = {output}});
    const int gather =
        plan.Add({.stream = 2, .host = 10, .device = 150, .waits = {cast, copy}, .group = 0});
    plan.Add({.stream = 0,
              .host = 5,
              .device = 20,
              .waits = {gather},
              .allocs = {gathered},
              .frees = {output}});
    int kernel = 0;
    for (int i = 0; i < kKernelsPerBlock; ++i) {
      kernel = plan.Add({.stream = 0, .host = 5, .device = 11, .allocs = {temp}, .frees = {temp}});
    }
    plan.Add({.stream = 3,
              .host = 10,
              .device = 150,
              .waits = {kernel},
              .group = 0,
              .frees = {gathered}});
  }
  plan.AddProgram({{0, 1}});
  return plan;
}

void RunOnce(const run::Program& program, const std::vector<run::Listener*>& listeners) {
  const run::ProgramId steps[] = {run::ProgramId{0}};
  benchmark::DoNotOptimize(Engine(program, listeners).Run(steps));
}

void BM_Engine(benchmark::State& state) {
  const run::Program program = BlockPlan().Compiled();
  for (auto _ : state) RunOnce(program, {});
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(program.ops.size()));
}
BENCHMARK(BM_Engine);

// As Simulate runs it, with everything that watches.
void BM_EngineWithListeners(benchmark::State& state) {
  const TinyPlan plan = BlockPlan();
  const run::Program program = plan.Compiled();
  for (auto _ : state) {
    InvariantChecker invariants(program);
    run::MemoryRecorder memory(plan.plan(), program, 1);
    run::StepMeter meter(program);
    RunOnce(program, {&invariants, &memory, &meter});
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(program.ops.size()));
}
BENCHMARK(BM_EngineWithListeners);

void BM_Compile(benchmark::State& state) {
  const TinyPlan plan = BlockPlan();
  int64_t ops = 0;
  for (auto _ : state) ops += static_cast<int64_t>(plan.Compiled().ops.size());
  state.SetItemsProcessed(ops);
}
BENCHMARK(BM_Compile);

}  // namespace
}  // namespace foreshard::sim
