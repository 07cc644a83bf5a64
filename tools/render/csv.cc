#include "tools/render/csv.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "proto/report.pb.h"
#include "tools/render/ledger.h"
#include "tools/render/wire.h"

namespace foreshard {
namespace {

struct Column {
  const char* name;
  std::string (*value)(const pb::Report&);
};

constexpr Column kColumns[] = {
    {"model", [](const pb::Report& r) { return r.setup().model(); }},
    {"strategy", [](const pb::Report& r) { return r.setup().strategy(); }},
    {"wrap", [](const pb::Report& r) { return r.setup().wrap_policy(); }},
    {"world_size", [](const pb::Report& r) { return fmt::to_string(r.setup().world_size()); }},
    {"cluster", [](const pb::Report& r) { return r.setup().cluster(); }},
    {"seq_tokens", [](const pb::Report& r) { return fmt::to_string(r.setup().seq()); }},
    {"micro_batch_sequences",
     [](const pb::Report& r) { return fmt::to_string(r.setup().micro_batch()); }},
    {"reshard_after_forward",
     [](const pb::Report& r) { return r.setup().reshard_after_forward(); }},
    {"replicate_size",
     [](const pb::Report& r) { return fmt::to_string(r.setup().replicate_size()); }},
    {"micro_batches",
     [](const pb::Report& r) { return fmt::to_string(r.setup().micro_batches()); }},
    {"recomputed_modules",
     [](const pb::Report& r) { return fmt::to_string(r.setup().recomputed_modules()); }},
    {"units", [](const pb::Report& r) { return fmt::to_string(r.setup().units()); }},
    {"fits", [](const pb::Report& r) { return std::string(r.fit().fits() ? "true" : "false"); }},
    {"peak_bytes", [](const pb::Report& r) { return fmt::to_string(r.fit().peak_bytes()); }},
    {"persistent_bytes",
     [](const pb::Report& r) { return fmt::to_string(r.fit().persistent_bytes()); }},
    {"headroom_bytes",
     [](const pb::Report& r) { return fmt::to_string(r.fit().headroom_bytes()); }},
    {"capacity_bytes",
     [](const pb::Report& r) { return fmt::to_string(r.fit().capacity_bytes()); }},
    {"reserve_bytes", [](const pb::Report& r) { return fmt::to_string(r.fit().reserve_bytes()); }},
    {"gathered_parameters_bytes",
     [](const pb::Report& r) { return fmt::to_string(GatheredAtPeak(r.peak())); }},
    {"payload_bytes", [](const pb::Report& r) { return fmt::to_string(PayloadBytes(r)); }},
    {"sent_bytes", [](const pb::Report& r) { return fmt::to_string(SentBytes(r)); }},
    {"step_ps", [](const pb::Report& r) { return fmt::to_string(r.timing().step_ps()); }},
    {"compute_busy_ps",
     [](const pb::Report& r) { return fmt::to_string(r.timing().compute_busy_ps()); }},
    {"communication_busy_ps",
     [](const pb::Report& r) { return fmt::to_string(r.timing().communication_busy_ps()); }},
    {"exposed_communication_ps",
     [](const pb::Report& r) { return fmt::to_string(r.timing().exposed_communication_ps()); }},
    {"tokens_per_second_per_gpu",
     [](const pb::Report& r) { return fmt::to_string(r.timing().tokens_per_second_per_gpu()); }},
    {"mfu_fraction", [](const pb::Report& r) { return fmt::to_string(r.timing().mfu()); }},
};

std::string Quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string RenderCsv(const pb::ReportTable& table) {
  std::string text;
  for (const Column& column : kColumns) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", column.name);
  }
  text += "\n";
  for (const pb::Report& report : table.reports()) {
    std::string line;
    for (const Column& column : kColumns) {
      line += (&column == kColumns ? "" : ",") + Quoted(column.value(report));
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace foreshard
