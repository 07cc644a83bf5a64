#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/model_source.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "proto/strategy.h"
#include "sim/catalogue.h"
#include "tools/combinations.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/report_output.h"

namespace foreshard {
namespace {

struct PredictFlags {
  PlanFlags plan;
  std::vector<std::string> clusters;
  OutputFlags output;
  SimulationFlags simulation;
};

// Nobody has said how many replicas a hybrid has.
bool LacksReplicas(const PlanFlags& flags, const PlanChoice& choice) {
  const std::optional<pb::Strategy> strategy = ParseStrategy(choice.strategy);
  return flags.decisions.empty() && choice.replicate == 0 && strategy && IsHybrid(*strategy);
}

// PyTorch's hybrids shard within a node and have a replica on each, unless told otherwise.
StatusOr<pb::Report> PredictOne(const PredictFlags& flags, const pb::Model& model,
                                const pb::Cluster& cluster, PlanChoice choice) {
  const int64_t nodes = choice.world / cluster.node().gpus();
  const bool per_node = LacksReplicas(flags.plan, choice) && nodes > 1;
  if (per_node) choice.replicate = nodes;
  ASSIGN_OR_RETURN(const pb::Plan plan, PlanFor(model, flags.plan, choice, cluster.gpu().arch()));
  ASSIGN_OR_RETURN(pb::Report report, ReportFor(plan, cluster, flags.simulation));
  if (per_node) {
    report.add_assumptions("replicas: one per node, as PyTorch takes them if nothing is said");
  }
  return report;
}

StatusOr<ExitCode> Predict(const PredictFlags& flags) {
  RETURN_IF_ERROR(CheckOutputs(flags.output));
  ASSIGN_OR_RETURN(const std::vector<Combination> all, Combinations(flags.plan, flags.clusters));
  for (const auto& [flag, file] : {std::pair("--trace", &flags.simulation.trace),
                                   std::pair("--output", &flags.simulation.file)}) {
    if (all.size() == 1 || file->empty()) continue;
    return InvalidArgument(
        fmt::format("{}: found {} combinations, expected one", flag, all.size()));
  }
  std::map<std::string, pb::Cluster> clusters;
  for (const std::string& source : flags.clusters) {
    ASSIGN_OR_RETURN(clusters[source], LoadCluster(source));
  }
  ASSIGN_OR_RETURN(const pb::Model model, LoadModel(flags.plan.model));
  std::vector<pb::Report> reports;
  for (const Combination& combination : all) {
    StatusOr<pb::Report> report =
        PredictOne(flags, model, clusters.at(combination.cluster), combination.choice);
    if (!report.ok()) {
      const std::string name = NameOf(combination, all);
      return name.empty() ? report.status() : report.status().At(name);
    }
    reports.push_back(std::move(report).value());
  }
  if (reports.size() == 1) return ShowReport(flags.output, reports.front());
  return ShowTable(flags.output, std::move(reports));
}

}  // namespace

Command AddPredict(CLI::App& app) {
  const auto flags = std::make_shared<PredictFlags>();
  CLI::App* command = app.add_subcommand("predict", "Predict memory and time of a training step");
  AddPlanFlags(*command, &flags->plan, Repeat::kYes);
  AddTexts(*command, "--cluster", &flags->clusters, Repeat::kYes, "Cluster file or built-in name")
      ->type_name("CLUSTER")
      ->required();
  AddOutputFlags(*command, &flags->output);
  AddSimulationFlags(*command, &flags->simulation);
  AddCsvFlag(*command, &flags->output);
  command->footer(
      "Flags that repeat make a table of all combinations, best first.\n\n"
      "Example:\n"
      "  foreshard predict --model llama-2-7b --cluster dgx-a100-80g --world 8 --seq 4096\n"
      "  foreshard predict --model llama-2-7b --cluster dgx-a100-40g --world 8 --seq 2048 "
      "--wrap block --wrap every:2 --wrap whole\n"
      "  foreshard predict --model llama-2-7b --cluster dgx-a100-80g --world 16 --seq 4096 "
      "--strategy fsdp2 --strategy full_shard --strategy hybrid_shard --strategy ddp\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return Predict(*flags); }};
}

}  // namespace foreshard
