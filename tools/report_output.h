// How commands come to a report, and the last step of those that end in one.
#pragma once

#include <string>
#include <vector>

#include "proto/base/status.h"
#include "tools/exit_code.h"
#include "tools/output.h"

namespace CLI {
class App;
}
namespace foreshard::pb {
class Cluster;
class Plan;
class Report;
}  // namespace foreshard::pb

namespace foreshard {

// What a simulation is asked for beside its report on stdout.
struct SimulationFlags {
  int rank = 0;       // that the report shows
  std::string trace;  // file for a timeline as a picture, "" = none
  std::string file;   // for the report with every op, "" = none
};

void AddSimulationFlags(CLI::App& app, SimulationFlags* flags);

// Simulates the plan and adds what the tools know besides; writes the files that the flags name.
// The report lists no ops. REQUIRES: CheckPlan(plan) is OK.
StatusOr<pb::Report> ReportFor(const pb::Plan& plan, const pb::Cluster& cluster,
                               const SimulationFlags& flags = {});

// Prints the report as text and as --json and --csv ask. The exit code says whether the plan fits.
StatusOr<ExitCode> ShowReport(const OutputFlags& flags, const pb::Report& report);

// The same for the reports of several choices, best first. The exit code says whether any fits.
StatusOr<ExitCode> ShowTable(const OutputFlags& flags, std::vector<pb::Report> reports);

}  // namespace foreshard
