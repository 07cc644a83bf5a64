// Any bytes as a plan, binary or text; what CheckPlan accepts is simulated.
#include <google/protobuf/stubs/logging.h>

#include "proto/base/check.h"
#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/report.pb.h"
#include "sim/simulate.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/two_unit_plan.h"

namespace foreshard {
namespace {

const pb::Cluster& RoundCluster() {
  static const pb::Cluster& cluster = *[] {
    auto* parsed = new pb::Cluster;
    CHECK(ParseText(sim::kRoundCluster, "cluster", *parsed).ok());
    return parsed;
  }();
  return cluster;
}

// Ops of one pass over all programs.
double OpsOf(const pb::Plan& plan) {
  double ops = 0;
  for (const pb::Program& program : plan.programs()) {
    for (const pb::SegmentUse& use : program.uses()) {
      ops += static_cast<double>(use.repeat()) * plan.segments(use.segment()).ops_size();
    }
  }
  return ops;
}

void CheckAndSimulate(const pb::Plan& plan) {
  constexpr double kMaxOps = 20'000;  // a plan may repeat a segment for as long as it likes
  if (!CheckPlan(plan).ok() || OpsOf(plan) > kMaxOps) return;
  const StatusOr<pb::Report> report = Simulate(plan, RoundCluster());
  if (!report.ok()) {
    fuzz::Require(report.status().code() != StatusCode::kInternal, report.status().message());
    return;
  }
  int64_t sum = 0;
  for (const pb::LedgerTerm& term : report->peak().ledger()) sum += term.bytes();
  fuzz::Require(sum == report->peak().bytes(), "the ledger sums to the peak");
}

}  // namespace
}  // namespace foreshard

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  // Strings that are no UTF-8 are refused, which need not be said each time.
  [[maybe_unused]] static const auto previous = google::protobuf::SetLogHandler(nullptr);
  pb::Plan binary;
  if (binary.ParseFromArray(data, static_cast<int>(size))) CheckAndSimulate(binary);
  pb::Plan text;
  if (ParseText(fuzz::AsText(data, size), "fuzz", text).ok()) CheckAndSimulate(text);
  return 0;
}
