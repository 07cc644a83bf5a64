#include <CLI/CLI.hpp>
#include <memory>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "tools/command.h"
#include "tools/export/trace.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/report_output.h"

namespace foreshard {
namespace {

struct PredictFlags {
  PlanFlags plan;
  std::string cluster;
  OutputFlags output;
  std::string trace;
};

StatusOr<ExitCode> Predict(const PredictFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Cluster cluster, LoadCluster(flags.cluster));
  ASSIGN_OR_RETURN(const pb::Plan plan, PlanFromFlags(flags.plan, cluster.gpu().arch()));
  ASSIGN_OR_RETURN(const pb::Report report, SimulateWithTrace(plan, cluster, flags.trace));
  return ShowReport(flags.output, report);
}

}  // namespace

Command AddPredict(CLI::App& app) {
  const auto flags = std::make_shared<PredictFlags>();
  CLI::App* command = app.add_subcommand("predict", "Predict memory and time of a training step");
  AddPlanFlags(*command, &flags->plan);
  command->add_option("--cluster", flags->cluster, "Cluster file or built-in name")
      ->type_name("CLUSTER")
      ->required();
  AddOutputFlags(*command, &flags->output);
  AddTraceFlag(*command, &flags->trace);
  command->footer(
      "Example:\n"
      "  foreshard predict --model llama-2-7b --cluster dgx-a100-80g --world 8 --seq 4096\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return Predict(*flags); }};
}

}  // namespace foreshard
