#include <CLI/CLI.hpp>
#include <memory>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/report_output.h"

namespace foreshard {
namespace {

struct SimFlags {
  std::string plan;
  std::string cluster;
  OutputFlags output;
  SimulationFlags simulation;
};

StatusOr<ExitCode> Sim(const SimFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Plan plan, LoadPlan(flags.plan));
  ASSIGN_OR_RETURN(const pb::Cluster cluster, LoadCluster(flags.cluster));
  ASSIGN_OR_RETURN(const pb::Report report, ReportFor(plan, cluster, flags.simulation));
  return ShowReport(flags.output, report);
}

}  // namespace

Command AddSim(CLI::App& app) {
  const auto flags = std::make_shared<SimFlags>();
  CLI::App* command = app.add_subcommand("sim", "Simulate a plan file on a cluster");
  command->add_option("plan", flags->plan, "Plan file (.textproto, .pb, .json)")
      ->type_name("PLAN")
      ->required();
  command->add_option("--cluster", flags->cluster, "Cluster file or built-in name")
      ->type_name("CLUSTER")
      ->required();
  AddOutputFlags(*command, &flags->output);
  AddSimulationFlags(*command, &flags->simulation);
  command->footer("Example:\n  foreshard sim plan.pb --cluster dgx-a100-80g -o predicted.pb\n\n" +
                  ExitCodeHelp());
  return {command, [flags] { return Sim(*flags); }};
}

}  // namespace foreshard
