// The simulator's front door: interprets a plan on a cluster and reports what it costs.
#pragma once

#include <span>

#include "proto/base/status.h"

namespace foreshard::pb {
class Cluster;
class Plan;
class Report;
}  // namespace foreshard::pb
namespace foreshard::run {
class Listener;
}

namespace foreshard {

struct SimulateOptions {
  int rank = 0;               // that the report shows; the last ones may hold less than rank 0
  bool has_timeline = false;  // the report lists every op of the first and of the reported step
  std::span<run::Listener* const> watchers = {};  // told of one run, of the steps reported
};

// Runs the program `first` once and `steady` until its step time repeats, on one rank.
// REQUIRES: CheckPlan(plan) is OK. "Does not fit" is an answer in the report, not an error.
// Errors: kInvalidArgument when the cluster is smaller than the plan's world, or the world than the
// rank.
StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster,
                              const SimulateOptions& options = {});

}  // namespace foreshard
