#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "proto/plan.pb.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/render/plan_text.h"

namespace foreshard {
namespace {

struct CheckFlags {
  std::string plan;
  OutputFlags output;
};

StatusOr<ExitCode> Check(const CheckFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Plan plan, LoadPlan(flags.plan));
  const nlohmann::ordered_json result = {
      {"schema_version", 1}, {"plan", flags.plan}, {"valid", true}};
  const auto replace =
      nlohmann::ordered_json::error_handler_t::replace;  // a file's name may be any bytes
  RETURN_IF_ERROR(WriteJson(flags.output, result.dump(1, ' ', false, replace)));
  RETURN_IF_ERROR(PrintText(flags.output, flags.plan + ": ok\n" + RenderPlanSummary(plan)));
  return ExitCode::kOk;
}

}  // namespace

Command AddCheck(CLI::App& app) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app.add_subcommand("check", "Test a plan file against every rule of a plan");
  command->add_option("plan", flags->plan, "Plan file (.textproto, .pb, .json)")
      ->type_name("PLAN")
      ->required();
  AddOutputFlags(*command, &flags->output);
  command->footer("Example:\n  foreshard check plan.pb\n\n" + ExitCodeHelp());
  return {command, [flags] { return Check(*flags); }};
}

}  // namespace foreshard
