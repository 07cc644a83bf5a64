#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "sim/catalogue.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/render/plan_text.h"

namespace foreshard {
namespace {

struct PlanCommandFlags {
  PlanFlags plan;
  std::string arch;  // "" = as the decisions say
  std::string cluster;
  std::string file;
  OutputFlags output;
};

StatusOr<std::string> Arch(const PlanCommandFlags& flags) {
  if (flags.cluster.empty()) return flags.arch;
  ASSIGN_OR_RETURN(const pb::Cluster cluster, LoadCluster(flags.cluster));
  return cluster.gpu().arch();
}

StatusOr<ExitCode> MakePlanFile(const PlanCommandFlags& flags) {
  ASSIGN_OR_RETURN(const std::string arch, Arch(flags));
  ASSIGN_OR_RETURN(const pb::Plan plan, PlanFromFlags(flags.plan, arch));
  if (!flags.file.empty()) {
    RETURN_IF_ERROR(AsOutputError(WriteMessage(flags.file, plan)).At("--output"));
  }
  RETURN_IF_ERROR(WriteJson(flags.output, plan));
  RETURN_IF_ERROR(PrintText(flags.output, RenderPlanSummary(plan)));
  return ExitCode::kOk;
}

}  // namespace

Command AddPlan(CLI::App& app) {
  const auto flags = std::make_shared<PlanCommandFlags>();
  CLI::App* command = app.add_subcommand("plan", "Lower a model to a plan file");
  AddPlanFlags(*command, &flags->plan, Repeat::kNo);
  CLI::Option* arch = command->add_option("--arch", flags->arch, "GPU architecture (sm80)");
  arch->type_name("ARCH");
  command->add_option("--cluster", flags->cluster, "Take the architecture from this cluster")
      ->type_name("CLUSTER")
      ->excludes(arch);
  command->add_option("-o,--output", flags->file, "Plan file to write (.textproto, .pb, .json)")
      ->type_name("FILE");
  AddOutputFlags(*command, &flags->output);
  command->footer(
      "Example:\n  foreshard plan --model llama-2-7b --world 8 --seq 4096 -o plan.pb\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return MakePlanFile(*flags); }};
}

}  // namespace foreshard
