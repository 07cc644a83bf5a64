#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/report.pb.h"
#include "sim/catalogue.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/peak_diff.h"
#include "tools/render/diff_text.h"
#include "tools/render/explain_text.h"
#include "tools/render/peak_diff_text.h"
#include "tools/report_diff.h"
#include "tools/report_input.h"

namespace foreshard {
namespace {

struct ExplainFlags {
  std::vector<std::string> files;
  std::string cluster;
  bool why_bigger = false;
  OutputFlags output;
};

StatusOr<std::vector<pb::Report>> Reports(const ExplainFlags& flags) {
  std::vector<ReportInput> inputs;
  bool any_plan = false;
  for (const std::string& file : flags.files) {
    ASSIGN_OR_RETURN(inputs.emplace_back(), ReadReportOrPlan(file));
    any_plan |= inputs.back().IsPlan();
  }
  if (!flags.cluster.empty() && !any_plan) {
    return InvalidArgument("--cluster: a report has one already; it is for plans");
  }
  std::vector<pb::Report> reports;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].IsPlan() && flags.cluster.empty()) {
      return InvalidArgument(flags.files[i] + ": a plan; --cluster says what to simulate it on");
    }
    ASSIGN_OR_RETURN(reports.emplace_back(), inputs[i].Report(flags.cluster));
  }
  return reports;
}

StatusOr<ExitCode> Explain(const ExplainFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<pb::Report> reports, Reports(flags));
  if (reports.size() == 1 && flags.why_bigger) {
    return InvalidArgument("--why-bigger: found one file, expected two whose peaks differ");
  }
  if (reports.size() == 1) {
    RETURN_IF_ERROR(WriteJson(flags.output, reports[0]));
    RETURN_IF_ERROR(PrintText(flags.output, RenderExplanation(reports[0], TextWidth())));
    return ExitCode::kOk;
  }
  const std::string& a = flags.files[0];
  const std::string& b = flags.files[1];
  const auto replace =
      nlohmann::ordered_json::error_handler_t::replace;  // a file's name may be any bytes
  if (flags.why_bigger) {
    const PeakDiff diff = DiffPeaks(reports[0], reports[1]);
    RETURN_IF_ERROR(
        WriteJson(flags.output, PeakDiffAsJson(a, b, diff).dump(2, ' ', false, replace)));
    RETURN_IF_ERROR(
        PrintText(flags.output, RenderPeakDiff(a, reports[0], b, reports[1], diff, TextWidth())));
    return ExitCode::kOk;
  }
  const std::vector<Difference> differences = Differences(reports[0], reports[1]);
  RETURN_IF_ERROR(
      WriteJson(flags.output, DifferencesAsJson(a, b, differences).dump(2, ' ', false, replace)));
  RETURN_IF_ERROR(PrintText(
      flags.output, RenderDifferences(a, reports[0], b, reports[1], differences, TextWidth())));
  return ExitCode::kOk;
}

}  // namespace

Command AddExplain(CLI::App& app) {
  const auto flags = std::make_shared<ExplainFlags>();
  CLI::App* command =
      app.add_subcommand("explain", "Show why a report says what it says, or how two differ");
  command
      ->add_option("files", flags->files,
                   "Report or plan (.json, .textproto, .pb); of two, what differs")
      ->type_name("FILE")
      ->required()
      ->expected(1, 2);
  command->add_option("--cluster", flags->cluster, "For plans: cluster file or built-in name")
      ->type_name("CLUSTER");
  command->add_flag("--why-bigger", flags->why_bigger,
                    "Of two: their peaks side by side, and the buffers that differ");
  AddOutputFlags(*command, &flags->output);
  command->footer(
      "Example:\n"
      "  foreshard explain report.json\n"
      "  foreshard explain plan.pb --cluster dgx-a100-80g\n"
      "  foreshard explain before.json after.json\n"
      "  foreshard explain --why-bigger before.json after.json\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return Explain(*flags); }};
}

}  // namespace foreshard
