// A small report with a timeline, and joins of what tests make of it.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "sim/simulate.h"
#include "tests/testing/parse.h"
#include "tests/testing/two_unit_plan.h"
#include "tools/report_join.h"

namespace foreshard {

inline const Tolerances kExact;

inline pb::Report Predicted() {
  static const pb::Report report =
      Simulate(ParseOrDie<pb::Plan>(sim::kTwoUnitPlan), ParseOrDie<pb::Cluster>(sim::kRoundCluster),
               {.has_timeline = true})
          .value();
  return report;
}

inline StatusOr<ReportJoin> TryJoin(const pb::Report& a, const pb::Report& b,
                                    const Tolerances& tolerances = kExact) {
  return JoinReports({"a.pb", a}, {"b.pb", b}, tolerances);
}

inline ReportJoin Join(const pb::Report& a, const pb::Report& b,
                       const Tolerances& tolerances = kExact) {
  return TryJoin(a, b, tolerances).value();
}

inline Tolerances With(std::string_view text) { return ParseTolerances(text).value(); }

inline const Verdict& Of(const ReportJoin& join, std::string_view tolerance) {
  for (const Verdict& verdict : join.verdicts) {
    if (verdict.tolerance == tolerance) return verdict;
  }
  ADD_FAILURE() << tolerance;
  return join.verdicts.front();
}

}  // namespace foreshard
