#include "tools/export/trace.h"

#include <CLI/CLI.hpp>

#include "proto/base/file.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "tools/export/timeline.h"
#include "tools/output.h"

namespace foreshard {

void AddTraceFlag(CLI::App& app, std::string* path) {
  app.add_option("--trace", *path,
                 "Write a timeline of three steps to FILE (.pftrace), for ui.perfetto.dev")
      ->type_name("FILE");
}

StatusOr<pb::Report> SimulateWithTrace(const pb::Plan& plan, const pb::Cluster& cluster,
                                       const std::string& trace_path, SimulateOptions options) {
  if (trace_path.empty()) return Simulate(plan, cluster, options);
  Timeline timeline(plan);
  run::Listener* const watchers[] = {&timeline};
  options.watchers = watchers;
  ASSIGN_OR_RETURN(pb::Report report, Simulate(plan, cluster, options));
  RETURN_IF_ERROR(AsOutputError(WriteFileAtomically(trace_path, timeline.Take())).At("--trace"));
  return report;
}

}  // namespace foreshard
