// Memory of the ranks that hold less than rank 0.
#pragma once

#include "proto/plan.pb.h"
#include "proto/run/report_builder.h"

namespace foreshard::sim {

// Adds the memory of every rank to the report; ranks that the plan does not tell apart are looked
// at once.
void AddRanks(const pb::Plan& plan, run::ReportBuilder& builder);

}  // namespace foreshard::sim
