// The last step of every command that ends in a report.
#pragma once

#include "proto/base/status.h"
#include "tools/exit_code.h"
#include "tools/output.h"

namespace foreshard::pb {
class Report;
}

namespace foreshard {

// Prints the report as text and as --json asks. The exit code says whether the plan fits.
StatusOr<ExitCode> ShowReport(const OutputFlags& flags, const pb::Report& report);

}  // namespace foreshard
