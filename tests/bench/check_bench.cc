// How long the gate takes: every command that reads or makes a plan passes it once.
#include <benchmark/benchmark.h>

#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/base/check.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/plan_check_facts.h"

namespace foreshard {
namespace {

pb::Plan PlanOf(const char* model, int world, int64_t seq) {
  PlanRequest request;
  request.world_size = world;
  request.seq = seq;
  return MakePlan(LoadModel(model).value(), request).value();
}

void Check(benchmark::State& state, const pb::Plan& plan) {
  for (auto _ : state) CHECK(CheckPlan(plan).ok());
  int64_t ops = 0;
  for (const pb::Segment& segment : plan.segments()) ops += segment.ops_size();
  state.counters["ops"] = static_cast<double>(ops);
}

void BM_CheckLlama2_7B(benchmark::State& state) { Check(state, PlanOf("llama-2-7b", 8, 4096)); }
BENCHMARK(BM_CheckLlama2_7B)->Unit(benchmark::kMillisecond);

void BM_CheckLlama31_405B(benchmark::State& state) {
  Check(state, PlanOf("llama-3.1-405b", 512, 8192));
}
BENCHMARK(BM_CheckLlama31_405B)->Unit(benchmark::kMillisecond);

void BM_AnalyzeLlama31_405B(benchmark::State& state) {
  const pb::Plan plan = PlanOf("llama-3.1-405b", 512, 8192);
  for (auto _ : state) benchmark::DoNotOptimize(AnalyzePlan(plan));
}
BENCHMARK(BM_AnalyzeLlama31_405B)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace foreshard
