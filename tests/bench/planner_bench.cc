// From a model to an answer, step by step. Sizes: Llama-2-7B has 32 layers, Llama-3.1-405B 126; a
// plan of the latter has some 16,000 ops.
#include <benchmark/benchmark.h>

#include <string>

#include "planner/graph/model_graph.h"
#include "planner/model_source.h"
#include "planner/plan.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"

namespace foreshard {
namespace {

constexpr const char* kSmall = "llama-2-7b";
constexpr const char* kLarge = "llama-3.1-405b";
constexpr int64_t kSeq = 4096;

PlanRequest Request() {
  PlanRequest request;
  request.world_size = 8;
  request.seq = kSeq;
  return request;
}

int64_t Ops(const pb::Plan& plan) {
  int64_t ops = 0;
  for (const pb::Segment& segment : plan.segments()) ops += segment.ops_size();
  return ops;
}

void BM_BuildModelGraph(benchmark::State& state, const std::string& name) {
  const pb::Model model = LoadModel(name).value();
  for (auto _ : state) benchmark::DoNotOptimize(BuildModelGraph(model, 1, kSeq).value());
}
BENCHMARK_CAPTURE(BM_BuildModelGraph, 7b, kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_BuildModelGraph, 405b, kLarge)->Unit(benchmark::kMillisecond);

void BM_MakePlan(benchmark::State& state, const std::string& name) {
  const pb::Model model = LoadModel(name).value();
  int64_t ops = 0;
  for (auto _ : state) ops += Ops(MakePlan(model, Request()).value());
  state.SetItemsProcessed(ops);
}
BENCHMARK_CAPTURE(BM_MakePlan, 7b, kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_MakePlan, 405b, kLarge)->Unit(benchmark::kMillisecond);

void BM_CheckPlan(benchmark::State& state, const std::string& name) {
  const pb::Plan plan = MakePlan(LoadModel(name).value(), Request()).value();
  for (auto _ : state) {
    if (!CheckPlan(plan).ok()) state.SkipWithError("the plan breaks a rule");
  }
  state.SetItemsProcessed(state.iterations() * Ops(plan));
}
BENCHMARK_CAPTURE(BM_CheckPlan, 7b, kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_CheckPlan, 405b, kLarge)->Unit(benchmark::kMillisecond);

void BM_Simulate(benchmark::State& state, const std::string& name) {
  const pb::Plan plan = MakePlan(LoadModel(name).value(), Request()).value();
  const pb::Cluster cluster = LoadCluster("dgx-a100-80g").value();
  for (auto _ : state) benchmark::DoNotOptimize(Simulate(plan, cluster).value());
}
BENCHMARK_CAPTURE(BM_Simulate, 7b, kSmall)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace foreshard
