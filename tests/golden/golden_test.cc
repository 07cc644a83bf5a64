// Holds the planner and the simulator against traces of real PyTorch: one test per recorded case.
// FORESHARD_GOLDEN_DIR names another folder of cases; there, records that are not about a plan of
// ours, and models that no reader knows, are skipped with the reason. What the planner refuses is a
// failure. The copies in tests/golden/data must all run.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"
#include "tests/golden/golden_case.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/wrap_results.h"

namespace foreshard::golden {
namespace {

namespace fs = std::filesystem;

// The world of a case fits on as many nodes as it needs; memory does not depend on the cluster.
constexpr const char* kCluster = "dgx-a100-80g";

class GoldenTest : public ::testing::Test {
 public:
  GoldenTest(fs::path path, bool must_run) : path_(std::move(path)), must_run_(must_run) {}

  void TestBody() override {
    try {
      Run();
    } catch (const json::exception& e) {
      FAIL() << path_ << " is not of a known schema: " << e.what();
    }
  }

 private:
  void Run() {
    const StatusOr<json> document = ReadDocument(path_);
    ASSERT_TRUE(document.ok()) << document.status().message();
    if (IsWrapPolicy(*document)) {
      for (const std::string& difference : WrapDifferences(*document)) ADD_FAILURE() << difference;
      return;
    }
    if (const std::string reason = WhyNotCompared(*document); !reason.empty()) return Skip(reason);
    const StatusOr<pb::Model> model = ModelOf(*document);
    // Families of models come one by one; the small trees are all of one.
    if (!model.ok() && IsEndToEnd(*document)) return Skip(model.status().message());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const StatusOr<pb::Plan> plan = MakePlan(*model, RequestOf(*document));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    Compare(*document, *plan);
  }

  void Compare(const json& document, const pb::Plan& plan) {
    const Status checked = CheckPlan(plan);
    ASSERT_TRUE(checked.ok()) << checked.message();
    const StatusOr<pb::Cluster> cluster = LoadCluster(kCluster);
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    const StatusOr<pb::Report> report = Simulate(plan, *cluster, {.rank = RankOf(document)});
    ASSERT_TRUE(report.ok()) << report.status().message();
    const Comparison comparison = golden::Compare(document, plan, *report);
    for (const std::string& difference : comparison.differences) ADD_FAILURE() << difference;
    if (!comparison.info.empty()) std::cout << "  " << comparison.info << "\n";
  }

  void Skip(const std::string& reason) {
    if (must_run_) FAIL() << "this case must run, but: " << reason;
    GTEST_SKIP() << reason;
  }

  fs::path path_;
  bool must_run_;
};

// Test names allow letters, digits and underscores.
std::string TestName(const std::string& stem) {
  std::string name = stem;
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
}

void Register(const fs::path& folder, const std::string& suite, bool must_run) {
  for (const fs::path& path : CasesIn(folder)) {
    ::testing::RegisterTest(suite.c_str(), TestName(path.stem().string()).c_str(), nullptr, nullptr,
                            __FILE__, __LINE__,
                            [=]() -> ::testing::Test* { return new GoldenTest(path, must_run); });
  }
}

void RegisterAll() {
  if (const char* folder = std::getenv("FORESHARD_GOLDEN_DIR")) {
    return Register(folder, "Golden", false);
  }
  const fs::path data = fs::path(FORESHARD_SOURCE_DIR) / "tests/golden/data";
  Register(data, "Golden", true);
  Register(data / "torch-2.15", "GoldenTorch215", true);
  Register(data / "e2e", "GoldenEndToEnd", true);
  Register(data / "ddp", "GoldenDdp", true);
}

}  // namespace
}  // namespace foreshard::golden

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  foreshard::golden::RegisterAll();
  const int result = RUN_ALL_TESTS();
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  if (::testing::GTEST_FLAG(list_tests)) return result;
  const int compared = tests.successful_test_count() + tests.failed_test_count();
  std::cout << compared << " cases compared, " << tests.skipped_test_count() << " skipped\n";
  if (compared > 0) return result;
  std::cerr << "no case was compared: nothing has been tested\n";
  return 1;
}
