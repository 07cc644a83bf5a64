#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "proto/base/units_text.h"
#include "proto/plan.pb.h"
#include "proto/plan_check_facts.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/render/plan_text.h"

namespace foreshard {
namespace {

struct CheckFlags {
  std::string plan;
  bool verbose = false;
  OutputFlags output;
};

nlohmann::ordered_json ToJson(const PlanFacts& facts) {
  nlohmann::ordered_json json = {{"ops", facts.ops},
                                 {"buffers", facts.buffers},
                                 {"kernels", facts.kernels},
                                 {"waits", facts.waits},
                                 {"redundant_waits", facts.redundant},
                                 {"redundant_by_kind", nlohmann::ordered_json::array()}};
  for (const RedundantWaits& r : facts.redundant_waits) {
    json["redundant_by_kind"].push_back(
        {{"waiter", r.waiter}, {"on", r.on}, {"count", r.count}, {"example", r.example}});
  }
  return json;
}

std::string Describe(const PlanFacts& facts, bool verbose) {
  std::string text =
      fmt::format("{} ops, {} buffers, {} kernels, {} waits of which {} redundant\n",
                  FormatCount(facts.ops), FormatCount(facts.buffers), FormatCount(facts.kernels),
                  FormatCount(facts.waits), FormatCount(facts.redundant));
  if (!verbose) return text;
  for (const RedundantWaits& r : facts.redundant_waits) {
    text += fmt::format("  redundant: {} waits for {}, {} times, first {}\n", r.waiter, r.on,
                        r.count, r.example);
  }
  return text;
}

StatusOr<ExitCode> Check(const CheckFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Plan plan, LoadPlan(flags.plan));
  const PlanFacts facts = AnalyzePlan(plan);
  nlohmann::ordered_json result = {{"schema_version", 1}, {"plan", flags.plan}, {"valid", true}};
  result.update(ToJson(facts));
  const auto replace =
      nlohmann::ordered_json::error_handler_t::replace;  // a file's name may be any bytes
  RETURN_IF_ERROR(WriteJson(flags.output, result.dump(1, ' ', false, replace)));
  RETURN_IF_ERROR(PrintText(flags.output, flags.plan + ": ok\n" + Describe(facts, flags.verbose) +
                                              RenderPlanSummary(plan)));
  return ExitCode::kOk;
}

}  // namespace

Command AddCheck(CLI::App& app) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app.add_subcommand("check", "Test a plan file against every rule of a plan");
  command->add_option("plan", flags->plan, "Plan file (.textproto, .pb, .json)")
      ->type_name("PLAN")
      ->required();
  command->add_flag("--verbose", flags->verbose,
                    "List the waits that the order of other ops makes superfluous");
  AddOutputFlags(*command, &flags->output);
  command->footer("Example:\n  foreshard check plan.pb\n\n" + ExitCodeHelp());
  return {command, [flags] { return Check(*flags); }};
}

}  // namespace foreshard
