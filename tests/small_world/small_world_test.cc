// Every plan of the small world passes CheckPlan, and plans with one thing changed are refused by a
// rule, or do the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "exec/cpu/sanitizers.h"
#include "proto/plan_check.h"
#include "proto/plan_check_facts.h"
#include "tests/small_world/mutants.h"
#include "tests/small_world/world.h"

namespace foreshard {
namespace {

// Sanitized runs are slow, and a few plans use all the code there is.
constexpr size_t kMostPerLayout = exec::sanitizers::kIsSanitized ? 10 : 200;
constexpr size_t kRandomCases = exec::sanitizers::kIsSanitized ? 50 : 500;
constexpr uint64_t kRandomSeed = 7;
constexpr size_t kMutatedPlans = exec::sanitizers::kIsSanitized ? 15 : 120;
constexpr size_t kSitesOfAPlan = 12;  // per mutation

std::vector<SmallCase> AllCases(Library library) {
  std::vector<SmallCase> cases = SmallLayouts(kMostPerLayout, library);
  for (SmallCase& c : RandomSmallCases(kRandomCases, kRandomSeed, library)) {
    cases.push_back(std::move(c));
  }
  return cases;
}

class SmallWorldOf : public testing::TestWithParam<Library> {};
INSTANTIATE_TEST_SUITE_P(All, SmallWorldOf,
                         testing::Values(Library::kFsdp2, Library::kFsdp1, Library::kDdp),
                         [](const auto& library) { return Name(library.param); });

TEST_P(SmallWorldOf, EveryPlanPassesCheckPlan) {
  int accepted = 0;
  int refused = 0;
  for (const SmallCase& c : AllCases(GetParam())) {
    const StatusOr<pb::Plan> plan = PlanOfCase(c);
    if (!plan.ok()) {
      // Choices that do not go together, as flash attention in fp32.
      ASSERT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << c.name;
      ++refused;
      continue;
    }
    const Status status = CheckPlan(*plan);
    EXPECT_TRUE(status.ok()) << c.name << ": " << status.message();
    ++accepted;
  }
  fmt::print("{} plans, {} combinations that the planner refuses\n", accepted, refused);
  EXPECT_GT(accepted, exec::sanitizers::kIsSanitized ? 100 : 3000);
  // FSDP1 takes offload and replicas only where something is sharded, which few ranks leave.
  EXPECT_LT(refused, 2 * accepted);
}

// "order" of "rule order: segment ...".
std::string RuleOf(const std::string& message) {
  const size_t begin = std::string("rule ").size();
  return message.substr(begin, message.find(':') - begin);
}

struct Count {
  int mutants = 0;
  int equivalent = 0;
  std::map<std::string, int> refused;  // by rule
};

void Report(const std::map<Mutation, Count>& counts) {
  int total = 0;
  for (const auto& [mutation, count] : counts) {
    // A plan that does the same with another life or label of a buffer differs in memory only.
    const bool memory = mutation >= Mutation::kFreeEarlier;
    std::string line =
        fmt::format("{:<22} {:>6}: {:>5} {}", Name(mutation), count.mutants, count.equivalent,
                    memory ? "legal, memory differs" : "equivalent");
    for (const auto& [rule, times] : count.refused) line += fmt::format(", {} {}", rule, times);
    fmt::print("{}\n", line);
    total += count.mutants;
  }
  fmt::print("{} mutants\n", total);
}

void TestMutants(const std::string& name, const pb::Plan& plan, std::mt19937_64& random,
                 std::map<Mutation, Count>& counts) {
  for (int m = 0; m < kMutations; ++m) {
    const auto mutation = static_cast<Mutation>(m);
    std::vector<Site> sites = Sites(plan, mutation);
    std::shuffle(sites.begin(), sites.end(), random);
    sites.resize(std::min(sites.size(), kSitesOfAPlan));
    for (const Site& site : sites) {
      const pb::Plan mutant = Mutant(plan, mutation, site);
      const Status status = CheckPlan(mutant);
      Count& count = counts[mutation];
      ++count.mutants;
      if (!status.ok()) {
        ASSERT_EQ(status.code(), StatusCode::kInvalidPlan);
        ++count.refused[RuleOf(status.message())];
        continue;
      }
      if (EquivalentPlans(plan, mutant)) {
        ++count.equivalent;
        continue;
      }
      ADD_FAILURE() << name << ": " << Name(mutation) << ", segment " << site.segment << " op "
                    << site.op << " entry " << site.index << " passes but does something else";
    }
  }
}

// What only one of the libraries has.
bool HasSites(Library library, Mutation mutation) {
  switch (mutation) {
    case Mutation::kDropCopyOut:
      return library == Library::kFsdp2;
    case Mutation::kDropConcat:
    case Mutation::kDropDivide:
    case Mutation::kDropRecord:
    case Mutation::kDropEventWait:
    case Mutation::kOtherRecord:
    case Mutation::kOtherEvent:
    case Mutation::kForgetStream:
      return library == Library::kFsdp1;
    case Mutation::kDropGather:
    case Mutation::kDropReshard:
    case Mutation::kDropReduceCopyIn:
    case Mutation::kDropReduceScatter:
      return library != Library::kDdp;
    default:
      return true;
  }
}

TEST_P(SmallWorldOf, MutantsAreRefusedOrDoTheSame) {
  std::vector<SmallCase> cases = AllCases(GetParam());
  std::mt19937_64 random(kRandomSeed);
  std::shuffle(cases.begin(), cases.end(), random);
  std::map<Mutation, Count> counts;
  size_t plans = 0;
  for (const SmallCase& c : cases) {
    const StatusOr<pb::Plan> plan = PlanOfCase(c);
    if (!plan.ok()) continue;
    TestMutants(c.name, *plan, random, counts);
    if (++plans == kMutatedPlans) break;
  }
  Report(counts);
  EXPECT_EQ(plans, kMutatedPlans);
  if (exec::sanitizers::kIsSanitized) return;  // too few for every kind
  for (int m = 0; m < kMutations; ++m) {
    const auto mutation = static_cast<Mutation>(m);
    EXPECT_EQ(counts[mutation].mutants > 0, HasSites(GetParam(), mutation)) << Name(mutation);
  }
}

TEST(SmallWorld, PlansAreEquivalentToThemselvesAndToNoOther) {
  const SmallCase layout = SmallLayouts(1)[0];
  const auto plan_of = [&](auto member, const auto& value) {
    SmallCase c = layout;
    c.request.*member = value;
    return PlanOfCase(c).value();
  };
  const pb::Plan plan = PlanOfCase(layout).value();
  EXPECT_TRUE(EquivalentPlans(plan, plan_of(&PlanRequest::torch, "2.15")));
  // 2.14 holds gather outputs and gradients longer, and does the same.
  EXPECT_TRUE(EquivalentPlans(plan, plan_of(&PlanRequest::torch, "2.14")));
  EXPECT_FALSE(EquivalentPlans(plan, plan_of(&PlanRequest::optimizer, "none")));
  EXPECT_FALSE(EquivalentPlans(plan, plan_of(&PlanRequest::optimizer, "sgd")));
  EXPECT_FALSE(EquivalentPlans(plan, plan_of(&PlanRequest::learning_rate, 0.1)));
  EXPECT_FALSE(EquivalentPlans(plan, plan_of(&PlanRequest::reduce_dtype, DType::kBf16)));
}

}  // namespace
}  // namespace foreshard
