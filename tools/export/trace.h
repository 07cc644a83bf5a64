// The flag --trace: a timeline of the simulated run beside its report.
#pragma once

#include <string>

#include "proto/base/status.h"
#include "sim/simulate.h"

namespace CLI {
class App;
}

namespace foreshard {

void AddTraceFlag(CLI::App& app, std::string* path);

// Simulates the plan; unless `trace_path` is empty, a timeline of the run is written there, whole
// or not at all. REQUIRES: CheckPlan(plan) is OK.
StatusOr<pb::Report> SimulateWithTrace(const pb::Plan& plan, const pb::Cluster& cluster,
                                       const std::string& trace_path, SimulateOptions options = {});

}  // namespace foreshard
