// Any bytes as a cluster, in its text and JSON forms; a valid one prices a small plan.
#include "proto/base/check.h"
#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/cluster_check.h"
#include "sim/simulate.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/two_unit_plan.h"

namespace foreshard {
namespace {

const pb::Plan& SmallPlan() {
  static const pb::Plan& plan = *[] {
    auto* parsed = new pb::Plan;
    CHECK(ParseText(sim::kTwoUnitPlan, "two units", *parsed).ok());
    return parsed;
  }();
  return plan;
}

}  // namespace
}  // namespace foreshard

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  const std::string_view text = fuzz::AsText(data, size);
  pb::Cluster cluster;
  const Status status =
      text.starts_with('{') ? ParseJson(text, "fuzz", cluster) : ParseText(text, "fuzz", cluster);
  if (!status.ok()) return 0;
  const Status verdict = CheckCluster(cluster);
  const StatusOr<pb::Report> report = Simulate(SmallPlan(), cluster);
  fuzz::Require(verdict.ok() || !report.ok(), "an invalid cluster is refused");
  return 0;
}
