// From the logs of a run's ranks to its report.
#pragma once

#include <span>

#include "exec/log.h"
#include "proto/base/status.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/run/program.h"

namespace foreshard::exec {

// One rank, seen after the run.
struct RankRecord {
  run::Program program;  // with the sizes that the device counted
  const RankLog* log = nullptr;
};

// REQUIRES: everything has ended. kInternal when the device counted other bytes than the events of
// the log add up to.
StatusOr<pb::Report> Measure(const pb::Plan& plan, std::span<const RankRecord> ranks,
                             int report_rank);

// The first steps of one rank, one of each program.
pb::Timeline TimelineOf(const pb::Plan& plan, const RankRecord& record, int rank);

}  // namespace foreshard::exec
