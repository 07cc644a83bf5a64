#include "tools/report_output.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "tools/export/trace.h"
#include "tools/render/csv.h"
#include "tools/render/table_text.h"
#include "tools/render/text_report.h"
#include "tools/textbook.h"

namespace foreshard {
namespace {

// What fits by step time, then peak; then the rest by what is missing.
auto Rank(const pb::Report& report) {
  const pb::Fit& fit = report.fit();
  return std::tuple(!fit.fits(), fit.fits() ? report.timing().step_ps() : -fit.headroom_bytes(),
                    fit.peak_bytes());
}

}  // namespace

void AddSimulationFlags(CLI::App& app, SimulationFlags* flags) {
  app.add_option("--rank", flags->rank, "Rank that the report shows (0); the last may hold less")
      ->type_name("RANK")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-o,--output", flags->file,
                 "Report with every op to write (.json, .textproto, .pb), for compare")
      ->type_name("FILE");
  AddTraceFlag(app, &flags->trace);
}

StatusOr<pb::Report> ReportFor(const pb::Plan& plan, const pb::Cluster& cluster,
                               const SimulationFlags& flags) {
  const int world = plan.mesh().world_size();
  if (flags.rank >= world) {
    return InvalidArgument(fmt::format("--rank: {} of a plan for {} ranks, expected 0 to {}",
                                       flags.rank, world, world - 1));
  }
  ASSIGN_OR_RETURN(pb::Report report,
                   SimulateWithTrace(plan, cluster, flags.trace,
                                     {.rank = flags.rank, .has_timeline = !flags.file.empty()}));
  FillTextbook(plan, report);
  if (!flags.file.empty()) {
    RETURN_IF_ERROR(AsOutputError(WriteMessage(flags.file, report)).At("--output"));
    report.clear_timeline();
  }
  return report;
}

StatusOr<ExitCode> ShowReport(const OutputFlags& flags, const pb::Report& report) {
  RETURN_IF_ERROR(WriteJson(flags, report));
  pb::ReportTable row;
  if (!flags.csv.empty()) *row.add_reports() = report;
  RETURN_IF_ERROR(WriteCsv(flags, RenderCsv(row)));
  RETURN_IF_ERROR(PrintText(flags, RenderText(report, TextWidth())));
  return report.fit().fits() ? ExitCode::kOk : ExitCode::kDoesNotFit;
}

StatusOr<ExitCode> ShowTable(const OutputFlags& flags, std::vector<pb::Report> reports) {
  std::ranges::stable_sort(reports, {}, Rank);
  pb::ReportTable table;
  table.set_schema_version(1);
  for (pb::Report& report : reports) *table.add_reports() = std::move(report);
  RETURN_IF_ERROR(WriteJson(flags, table));
  RETURN_IF_ERROR(WriteCsv(flags, RenderCsv(table)));
  RETURN_IF_ERROR(PrintText(flags, RenderTable(table, TextWidth())));
  return table.reports(0).fit().fits() ? ExitCode::kOk : ExitCode::kDoesNotFit;
}

}  // namespace foreshard
