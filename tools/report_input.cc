#include "tools/report_input.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/base/file.h"
#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "proto/plan_check.h"
#include "sim/catalogue.h"
#include "tools/report_output.h"

namespace foreshard {
namespace {

using google::protobuf::FieldDescriptor;

constexpr int kSchemaVersion = 1;
constexpr double kLargestSum = 4e18;  // so that no sum or difference of figures overflows

// Sum of the sizes of all its integers.
double Magnitude(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  double sum = 0;
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        sum += Magnitude(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                              : reflection.GetMessage(message, field));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 && !field->is_repeated()) {
        sum += std::abs(static_cast<double>(reflection.GetInt64(message, field)));
      }
    }
  }
  return sum;
}

// Sums of a timeline are of durations and of bytes.
double MagnitudeOf(const pb::Timeline& timeline) {
  double sum = 0;
  const auto add = [&](const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& rows) {
    for (const pb::CategoryBytes& row : rows) sum += std::abs(static_cast<double>(row.bytes()));
  };
  add(timeline.resident());
  for (const pb::TimelineOp& op : timeline.ops()) {
    sum += static_cast<double>(op.end_ps() - op.start_ps());
    add(op.allocated());
    add(op.settled());
    add(op.freed());
  }
  return sum;
}

Status CheckTimeline(const pb::Timeline& timeline) {
  const auto lists = [](int index, int size) { return 0 <= index && index < size; };
  for (int i = 0; i < timeline.ops_size(); ++i) {
    const pb::TimelineOp& op = timeline.ops(i);
    if (!lists(op.program(), timeline.programs_size()) ||
        !lists(op.segment(), timeline.segments_size()) ||
        (op.stream() != -1 && !lists(op.stream(), timeline.streams_size()))) {
      return InvalidInput(fmt::format(
          "timeline.ops[{}]: found program {}, segment {} and stream {} of {}, {} and {}", i,
          op.program(), op.segment(), op.stream(), timeline.programs_size(),
          timeline.segments_size(), timeline.streams_size()));
    }
    if (op.start_ps() < 0 || op.end_ps() < op.start_ps()) {
      return InvalidInput(fmt::format("timeline.ops[{}]: found times from {} to {} ps", i,
                                      op.start_ps(), op.end_ps()));
    }
  }
  return OkStatus();
}

Status CheckReport(const pb::Report& report, const std::string& path) {
  RETURN_IF_ERROR(CheckTimeline(report.timeline()).At(path));
  pb::Report summary = report;
  summary.clear_timeline();
  if (Magnitude(summary) + MagnitudeOf(report.timeline()) > kLargestSum) {
    return InvalidInput(path + ": the figures of the report add up to more than 64 bits hold");
  }
  if (report.schema_version() == kSchemaVersion) return OkStatus();
  return InvalidInput(
      fmt::format("{}: schema_version is {} in what should be a report, expected {}", path,
                  report.schema_version(), kSchemaVersion));
}

// kInvalidPlan for a plan that breaks a rule, kInvalidInput for what is none.
StatusOr<ReportInput> AsPlan(const std::string& path) {
  pb::Plan plan;
  RETURN_IF_ERROR(ReadMessage(path, plan));
  if (!plan.has_header()) return InvalidInput(path + ": no header in what should be a plan");
  RETURN_IF_ERROR(CheckPlan(plan).At(path));
  return ReportInput{std::move(plan)};
}

StatusOr<ReportInput> AsReport(const std::string& path) {
  pb::Report report;
  RETURN_IF_ERROR(ReadMessage(path, report));
  RETURN_IF_ERROR(CheckReport(report, path));
  return ReportInput{std::move(report)};
}

StatusOr<ReportInput> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  // The grammar is checked with a good message when the file is read as what it is.
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return AsReport(path);
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  const auto any = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, has);
  };
  if (has("reports")) {
    return InvalidInput(path +
                        ": a table of several reports, expected one; predict one choice, or take "
                        "an entry of `reports`");
  }
  if (any({"setup", "fit", "peak", "timing"})) return AsReport(path);
  if (any({"header", "decisions", "segments", "programs"})) return AsPlan(path);
  return InvalidInput(path +
                      ": found neither the fields of a report (setup, fit, peak, timing) nor those "
                      "of a plan (header, decisions, segments, programs)");
}

}  // namespace

StatusOr<pb::Report> ReportInput::Report(const std::string& cluster) const {
  if (!IsPlan()) return std::get<pb::Report>(content);
  ASSIGN_OR_RETURN(const pb::Cluster loaded, LoadCluster(cluster));
  return ReportFor(std::get<pb::Plan>(content), loaded);
}

StatusOr<ReportInput> ReadReportOrPlan(const std::string& path) {
  if (path.ends_with(".json")) return ReadJsonFile(path);
  StatusOr<ReportInput> report = AsReport(path);
  if (report.ok() || report.status().code() == StatusCode::kNotFound) return report;
  StatusOr<ReportInput> plan = AsPlan(path);
  // A plan that breaks a rule is one, and an unknown suffix says the same twice.
  if (plan.ok() || plan.status().code() == StatusCode::kInvalidPlan ||
      plan.status().message() == report.status().message()) {
    return plan;
  }
  return InvalidInput(fmt::format("neither a report ({}) nor a plan ({})",
                                  report.status().message(), plan.status().message()));
}

}  // namespace foreshard
