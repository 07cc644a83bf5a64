// Plans with one thing wrong, run without CheckPlan: how many of those that it refuses does running
// them show? Each runs in a process of its own, since a wrong plan may end it. In a build with
// ThreadSanitizer, missing waits show as races; in all, memory that nobody wrote shows as NaN, and
// wrong numbers show in losses or weights.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "exec/cpu/sanitizers.h"
#include "proto/io.h"
#include "proto/plan_check.h"
#include "proto/plan_check_facts.h"
#include "tests/small_world/mutants.h"
#include "tests/small_world/world.h"
#include "tests/testing/temp_folder.h"

namespace foreshard {
namespace {

struct Outcome {
  int status = 0;
  std::string text;
};

// Runs the plan in another process.
Outcome RunAlone(const TempFolder& folder, const pb::Plan& plan) {
  const std::string path = folder.Path("plan.pb");
  CHECK(WriteMessage(path, plan).ok());
  const std::string command =
      fmt::format("timeout 60 {}/run_plan {} 2>/dev/null", FORESHARD_BIN_DIR, path);
  std::FILE* pipe = popen(command.c_str(), "r");
  CHECK(pipe != nullptr);
  Outcome outcome;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe))
    outcome.text.append(buffer, n);
  outcome.status = pclose(pipe);
  return outcome;
}

enum class Shown { kByEnding, kByError, kByNan, kByNumbers, kNot };

Shown HowShown(const Outcome& original, const Outcome& mutant) {
  if (mutant.status != 0) return Shown::kByEnding;  // a sanitizer or a failed CHECK
  if (mutant.text.starts_with("error")) return Shown::kByError;
  if (mutant.text.find("nan") != std::string::npos) return Shown::kByNan;
  return mutant.text == original.text ? Shown::kNot : Shown::kByNumbers;
}

struct Count {
  std::map<Shown, int> shown;
  int total = 0;
};

std::vector<SmallCase> Cases(Library library) {
  std::vector<SmallCase> cases = SmallLayouts(400, library);
  std::mt19937_64 random(11);
  std::shuffle(cases.begin(), cases.end(), random);
  std::erase_if(cases, [](const SmallCase& c) {
    // Without an optimizer a wrong gradient shows nowhere.
    return c.request.world_size < 2 || c.request.optimizer == "none" || !PlanOfCase(c).ok();
  });
  return cases;
}

// Mutants of every kind that CheckPlan refuses and that do something else.
void TryPlan(const TempFolder& folder, const pb::Plan& plan, std::mt19937_64& random,
             std::map<Mutation, Count>& counts) {
  const Outcome original = RunAlone(folder, plan);
  ASSERT_EQ(original.status, 0) << original.text;
  ASSERT_EQ(original.text.find("nan"), std::string::npos);
  for (int m = 0; m < kMutations; ++m) {
    const auto mutation = static_cast<Mutation>(m);
    const std::vector<Site> sites = Sites(plan, mutation);
    if (sites.empty()) continue;
    const pb::Plan mutant = Mutant(plan, mutation, sites[random() % sites.size()]);
    if (CheckPlan(mutant).ok() || EquivalentPlans(plan, mutant)) continue;
    Count& count = counts[mutation];
    ++count.total;
    ++count.shown[HowShown(original, RunAlone(folder, mutant))];
  }
}

void Report(const std::map<Mutation, Count>& counts, Count& all) {
  for (const auto& [mutation, count] : counts) {
    const auto of = [&](Shown how) {
      const auto found = count.shown.find(how);
      return found == count.shown.end() ? 0 : found->second;
    };
    fmt::print("{:<22} {:>4}: ended {}, error {}, NaN {}, other numbers {}, not shown {}\n",
               Name(mutation), count.total, of(Shown::kByEnding), of(Shown::kByError),
               of(Shown::kByNan), of(Shown::kByNumbers), of(Shown::kNot));
    for (const auto& [how, times] : count.shown) all.shown[how] += times;
    all.total += count.total;
  }
}

class RunMutants : public testing::TestWithParam<Library> {};
INSTANTIATE_TEST_SUITE_P(All, RunMutants, testing::Values(Library::kFsdp2, Library::kFsdp1),
                         [](const auto& library) { return Name(library.param); });

TEST_P(RunMutants, RunningShowsWhatTheCheckWouldHaveRefused) {
  const char* asked = std::getenv("FORESHARD_MUTATED_PLANS");
  const size_t usual = exec::sanitizers::kIsSanitized ? 3 : 6;
  const size_t plans = asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
  const TempFolder folder;
  std::mt19937_64 random(13);
  std::map<Mutation, Count> counts;
  const std::vector<SmallCase> cases = Cases(GetParam());
  for (size_t i = 0; i < std::min(plans, cases.size()); ++i) {
    SCOPED_TRACE(cases[i].name);
    ASSERT_NO_FATAL_FAILURE(TryPlan(folder, PlanOfCase(cases[i]).value(), random, counts));
  }
  Count all;
  Report(counts, all);
  const int shown = all.total - all.shown[Shown::kNot];
  fmt::print("{} of {} mutants that the check refuses show when they run: {:.0f} %\n", shown,
             all.total, 100.0 * shown / all.total);
  EXPECT_GT(all.total, 10);
  EXPECT_GT(2 * shown, all.total);
}

}  // namespace
}  // namespace foreshard
