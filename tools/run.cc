#include "exec/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "proto/base/safetensors.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/plan_flags.h"
#include "tools/render/run_text.h"
#include "tools/textbook.h"

namespace foreshard {
namespace {

struct RunFlags {
  std::string plan;
  std::string backend = "cpu";
  int steps = 3;
  uint64_t seed = 0;
  std::string data = "synthetic";
  std::string weights;
  int report_rank = 0;
  bool no_poison = false;
  std::string report;
  std::string save_weights;
  std::string save_gradients;
  OutputFlags output;
};

Status CheckFlags(const RunFlags& flags, const pb::Plan& plan) {
  if (flags.backend != "cpu") {
    return InvalidArgument(
        fmt::format("--backend: \"{}\" is not built in; expected cpu", flags.backend));
  }
  const int world = plan.mesh().world_size();
  if (flags.report_rank >= world) {
    return InvalidArgument(fmt::format("--report-rank: {} of a plan for {} ranks, expected 0 to {}",
                                       flags.report_rank, world, world - 1));
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<exec::WeightSource>> Weights(const RunFlags& flags, const pb::Plan& plan) {
  if (flags.weights.empty()) return exec::WeightsFromSeed(plan, flags.seed);
  ASSIGN_OR_RETURN(exec::FileWeights file, exec::WeightsFromFile(plan, flags.weights));
  if (!file.unused.empty()) {
    fmt::print(stderr, "foreshard: {}: {} tensors are no parameter of the plan, the first is {}\n",
               flags.weights, file.unused.size(), file.unused.front());
  }
  return std::move(file.source);
}

StatusOr<std::unique_ptr<exec::DataSource>> Data(const RunFlags& flags, const pb::Plan& plan) {
  if (flags.data == "synthetic") return exec::SyntheticData(plan, flags.seed);
  return exec::DataFromFile(plan, flags.data, flags.seed);
}

StoredType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return StoredType::kBf16;
    case DType::kFp16:
      return StoredType::kF16;
    default:
      return StoredType::kF32;
  }
}

Status Save(const char* flag, const std::string& path,
            const std::vector<exec::NamedTensor>& tensors) {
  if (path.empty()) return OkStatus();
  std::vector<TensorToWrite> rows;
  for (const exec::NamedTensor& t : tensors) {
    rows.push_back(FromMemory(t.path, TypeOf(t.dtype), t.shape, t.bytes));
  }
  return AsOutputError(WriteSafetensors(path, std::move(rows), {{"format", "pt"}})).At(flag);
}

exec::RunOptions OptionsOf(const RunFlags& flags) {
  exec::RunOptions options;
  options.steps = flags.steps;
  options.seed = flags.seed;
  options.report_rank = flags.report_rank;
  options.keeps_weights = !flags.save_weights.empty();
  options.keeps_gradients = !flags.save_gradients.empty();
  if (!flags.output.quiet) {
    options.on_step = [](const exec::StepResult& step) {
      fmt::print(
          stderr, "{}\n",
          StepText(step.step, step.losses, step.has_gradient_norm ? &step.gradient_norm : nullptr));
    };
  }
  return options;
}

void Describe(const RunFlags& flags, const pb::Plan& plan, const exec::RunOutcome& outcome,
              pb::Report& report) {
  FillTextbook(plan, report);
  pb::Environment& environment = *report.mutable_environment();
  environment.set_backend(flags.backend);
  environment.set_poisoned(!flags.no_poison);
  environment.set_seed(flags.seed);
  environment.set_weights(flags.weights.empty() ? "seed" : flags.weights);
  environment.set_data(flags.data);
  environment.set_steps(flags.steps);
  for (const exec::StepResult& step : outcome.steps) {
    pb::StepTraining& row = *report.add_training();
    row.mutable_losses()->Add(step.losses.begin(), step.losses.end());
    if (step.has_gradient_norm) row.set_gradient_norm(step.gradient_norm);
  }
}

StatusOr<ExitCode> RunPlan(const RunFlags& flags) {
  ASSIGN_OR_RETURN(const pb::Plan plan, LoadPlan(flags.plan));
  RETURN_IF_ERROR(CheckFlags(flags, plan));
  ASSIGN_OR_RETURN(const auto weights, Weights(flags, plan));
  ASSIGN_OR_RETURN(const auto data, Data(flags, plan));
  StatusOr<exec::RunOutcome> outcome =
      exec::RunOnCpu(plan, *weights, *data, !flags.no_poison, OptionsOf(flags));
  if (!outcome.ok()) return outcome.status().At(flags.plan);
  pb::Report& report = outcome.value().report;
  Describe(flags, plan, *outcome, report);
  RETURN_IF_ERROR(Save("--save-weights", flags.save_weights, outcome->weights));
  RETURN_IF_ERROR(Save("--save-gradients", flags.save_gradients, outcome->gradients));
  if (!flags.report.empty()) {
    RETURN_IF_ERROR(AsOutputError(WriteMessage(flags.report, report)).At("--output"));
  }
  pb::Report summary = report;
  summary.clear_timeline();
  RETURN_IF_ERROR(WriteJson(flags.output, summary));
  RETURN_IF_ERROR(PrintText(flags.output, RenderRun(report, TextWidth())));
  return ExitCode::kOk;
}

}  // namespace

Command AddRun(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Train with a plan for real and measure it");
  command->add_option("plan", flags->plan, "Plan file (.textproto, .pb, .json)")
      ->type_name("PLAN")
      ->required();
  command->add_option("--backend", flags->backend, "Where ranks run: cpu (threads of this process)")
      ->type_name("BACKEND");
  command->add_option("--steps", flags->steps, "Steps, the first and then steady ones (3)")
      ->type_name("K")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--seed", flags->seed, "Of initial weights, data and dropout (0)")
      ->type_name("S");
  command
      ->add_option("--data", flags->data,
                   "synthetic, a .txt file (bytes are tokens) or a .bin file (uint16 tokens)")
      ->type_name("FILE");
  command
      ->add_option("--weights", flags->weights,
                   "Initial weights: .safetensors or its index; else from the seed")
      ->type_name("FILE");
  command->add_option("--report-rank", flags->report_rank, "Rank that the report shows (0)")
      ->type_name("RANK")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--no-poison", flags->no_poison,
                    "Do not overwrite memory when its owner changes: faster, finds less");
  command
      ->add_option("-o,--output", flags->report,
                   "Report with every op to write (.json, .textproto, .pb), for compare")
      ->type_name("FILE");
  command->add_option("--save-weights", flags->save_weights, "Write the weights (.safetensors)")
      ->type_name("FILE");
  command
      ->add_option("--save-gradients", flags->save_gradients,
                   "Write the last step's gradients (.safetensors)")
      ->type_name("FILE");
  AddOutputFlags(*command, &flags->output);
  command->footer(
      "Example:\n  foreshard run plan.pb --steps 20 --data corpus.txt -o measured.pb\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return RunPlan(*flags); }};
}

}  // namespace foreshard
