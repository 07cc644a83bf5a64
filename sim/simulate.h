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

// Runs the program `first` once and `steady` until its step time repeats, on rank 0.
// REQUIRES: CheckPlan(plan) is OK. "Does not fit" is an answer in the report, not an error.
// Errors: kInvalidArgument when the cluster is smaller than the plan's world.
StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster);

// The same; `watchers` are told of one run, of the steps that the report is about.
StatusOr<pb::Report> Simulate(const pb::Plan& plan, const pb::Cluster& cluster,
                              std::span<run::Listener* const> watchers);

}  // namespace foreshard
