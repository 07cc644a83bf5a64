// Files that are a report, or a plan from which one is made.
#pragma once

#include <string>
#include <variant>

#include "proto/base/status.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"

namespace foreshard {

struct ReportInput {
  std::variant<pb::Report, pb::Plan> content;  // a plan has passed CheckPlan

  bool IsPlan() const { return std::holds_alternative<pb::Plan>(content); }
  // The report, or that of the plan on `cluster`.
  StatusOr<pb::Report> Report(const std::string& cluster) const;
};

// A .json tells by its fields what it is; other files are read as a report first, then as a plan.
// The rows of a timeline name what it lists, and their times are in order.
StatusOr<ReportInput> ReadReportOrPlan(const std::string& path);

}  // namespace foreshard
