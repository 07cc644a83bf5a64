#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "proto/report.pb.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/render/join_json.h"
#include "tools/render/join_text.h"
#include "tools/report_input.h"
#include "tools/report_join.h"
#include "tools/tolerance.h"

namespace foreshard {
namespace {

struct CompareFlags {
  std::string a;
  std::string b;
  std::string tolerance = "peak=0";
  OutputFlags output;
};

StatusOr<pb::Report> ReadReport(const std::string& path) {
  ASSIGN_OR_RETURN(ReportInput input, ReadReportOrPlan(path));
  if (input.IsPlan()) {
    return InvalidArgument(
        path + ": a plan; `foreshard sim` and `foreshard run` make a report of it with -o FILE");
  }
  return std::get<pb::Report>(std::move(input.content));
}

StatusOr<ExitCode> CompareReports(const CompareFlags& flags) {
  ASSIGN_OR_RETURN(const Tolerances tolerances, ParseTolerances(flags.tolerance));
  ASSIGN_OR_RETURN(const pb::Report a, ReadReport(flags.a));
  ASSIGN_OR_RETURN(const pb::Report b, ReadReport(flags.b));
  const NamedReport left{flags.a, a};
  const NamedReport right{flags.b, b};
  ASSIGN_OR_RETURN(const ReportJoin join, JoinReports(left, right, tolerances));
  RETURN_IF_ERROR(WriteJson(flags.output, JoinAsJson(left, right, join)));
  RETURN_IF_ERROR(PrintText(flags.output, RenderJoin(left, right, join, TextWidth())));
  return join.within ? ExitCode::kOk : ExitCode::kRegression;
}

}  // namespace

Command AddCompare(CLI::App& app) {
  const auto flags = std::make_shared<CompareFlags>();
  CLI::App* command =
      app.add_subcommand("compare", "Hold a measured report against a predicted one, op by op");
  command->add_option("predicted", flags->a, "Report that `sim -o` or `run -o` wrote")
      ->type_name("PREDICTED")
      ->required();
  command->add_option("measured", flags->b, "Report of the same plan and rank to hold against it")
      ->type_name("MEASURED")
      ->required();
  command
      ->add_option("--tolerance", flags->tolerance,
                   "How far they may be apart (peak=0): peak=, memory= bytes or percent, places= "
                   "yes or no, time= percent or factor")
      ->type_name("KEY=VALUE,...");
  AddOutputFlags(*command, &flags->output);
  command->footer(
      "Bytes must be equal and peaks at the same op unless --tolerance says otherwise; times are\n"
      "shown and judged only with time=.\n\n"
      "Example:\n"
      "  foreshard compare predicted.pb measured.pb\n"
      "  foreshard compare before.pb after.pb --tolerance peak=1MiB,memory=1%,time=10%\n\n" +
      ExitCodeHelp());
  return {command, [flags] { return CompareReports(*flags); }};
}

}  // namespace foreshard
