// Runs a plan file without asking CheckPlan, and prints what it came to: for plans that are wrong
// on purpose, in a process of their own.
//
//   run_plan PLAN.pb  ->  losses and a hash of the final weights, or an error
//
// The exit code is 0 when the run ended by itself; a sanitizer that finds something has another.
#include <fmt/format.h>

#include "exec/run.h"
#include "proto/base/text.h"
#include "proto/io.h"
#include "proto/plan.pb.h"

namespace foreshard {
namespace {

constexpr uint64_t kSeed = 5;

std::string Describe(const exec::RunOutcome& outcome) {
  std::string text;
  for (const exec::StepResult& step : outcome.steps) {
    for (const double loss : step.losses) text += fmt::format("{:a} ", loss);
  }
  uint64_t hash = 0;
  for (const exec::NamedTensor& t : outcome.weights) {
    const std::string_view bytes(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
    hash = hash * 31 + Fnv1a64(bytes);
  }
  return text + fmt::format("{:016x}", hash);
}

int Main(const std::string& path) {
  pb::Plan plan;
  if (const Status status = ReadMessage(path, plan); !status.ok()) {
    fmt::print(stderr, "{}\n", status.message());
    return 2;
  }
  const auto weights = exec::WeightsFromSeed(plan, kSeed);
  const auto data = exec::SyntheticData(plan, kSeed);
  if (!weights.ok() || !data.ok()) return 2;
  exec::RunOptions options;
  options.steps = 4;
  options.seed = kSeed;
  options.keeps_weights = true;
  const auto outcome = exec::RunOnCpu(plan, **weights, **data, true, options);
  if (!outcome.ok()) {
    fmt::print("error: {}\n", outcome.status().message());
    return 0;
  }
  fmt::print("{}\n", Describe(*outcome));
  return 0;
}

}  // namespace
}  // namespace foreshard

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return foreshard::Main(argv[1]);
}
