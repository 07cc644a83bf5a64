#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "planner/model_source.h"
#include "proto/strategy.h"
#include "sim/catalogue.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"

namespace foreshard {
namespace {

StatusOr<ExitCode> List(const OutputFlags& flags) {
  const nlohmann::ordered_json lists = {{"models", CatalogueModels()},
                                        {"clusters", CatalogueClusters()},
                                        {"kernel_profiles", KernelProfiles()},
                                        {"strategies", StrategyNames()},
                                        {"wrap_policies", WrapPolicies()}};
  std::string text;
  for (const auto& [key, names] : lists.items()) {
    std::string title = key;
    for (char& c : title) c = c == '_' ? ' ' : c;
    text += title + ":\n";
    for (const auto& name : names) text += fmt::format("  {}\n", name.get<std::string>());
  }
  nlohmann::ordered_json result = {{"schema_version", 1}};
  result.update(lists);
  RETURN_IF_ERROR(WriteJson(flags, result.dump(1)));
  RETURN_IF_ERROR(PrintText(flags, text));
  return ExitCode::kOk;
}

}  // namespace

Command AddList(CLI::App& app) {
  const auto flags = std::make_shared<OutputFlags>();
  CLI::App* command = app.add_subcommand(
      "list", "List built-in models and clusters, kernel profiles, strategies, wrap policies");
  AddOutputFlags(*command, flags.get());
  command->footer("Example:\n  foreshard list\n\n" + ExitCodeHelp());
  return {command, [flags] { return List(*flags); }};
}

}  // namespace foreshard
