#include <CLI/CLI.hpp>
#include <memory>

#include "planner/model_source.h"
#include "proto/model.pb.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/render/model_text.h"

namespace foreshard {
namespace {

struct InspectFlags {
  std::string model;
  ModelTextOptions text;
  OutputFlags output;
};

StatusOr<ExitCode> Inspect(const InspectFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Model model, LoadModel(flags.model));
  RETURN_IF_ERROR(WriteJson(flags.output, model));
  RETURN_IF_ERROR(PrintText(flags.output, RenderModel(model, flags.text)));
  return ExitCode::kOk;
}

}  // namespace

Command AddInspect(CLI::App& app) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show a model's modules and parameter counts");
  command
      ->add_option("model", flags->model,
                   "Hugging Face config.json, folder with one, native model file, or built-in name")
      ->type_name("MODEL")
      ->required();
  command->add_flag("--params", flags->text.parameters, "Show every parameter with its shape");
  AddOutputFlags(*command, &flags->output);
  command->footer("Example:\n  foreshard inspect llama-2-7b --params\n\n" + ExitCodeHelp());
  return {command, [flags] { return Inspect(*flags); }};
}

}  // namespace foreshard
