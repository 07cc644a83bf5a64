// The record of a whole model's trace: units and collectives with folded layers, and the events of
// iteration 1 with total bytes.
#include <fmt/format.h>

#include "tests/golden/golden_record.h"
#include "tests/golden/trace_text.h"

namespace foreshard::golden {
namespace {

using nlohmann::json;

// What was asked for, in force: the root keeps its parameters by default.
std::string ReshardText(const json& unit) {
  const json& asked = unit.at("reshard_after_forward");
  if (asked.is_null()) return unit.at("name") == "<root>" ? "false" : "true";
  return asked.dump();
}

void AddUnit(const json& unit, const std::string& layer, Lines& lines) {
  lines.push_back(
      Line(UnitLine{Replace(unit.at("name"), "{i}", layer), unit.at("numel"),
                    unit.at("padded_shard_numel"), unit.at("gathered_numel"), ReshardText(unit)}));
  for (const json& p : unit.at("params")) lines.push_back(Line(ParameterOf(p, layer)));
}

Lines UnitLines(const json& units) {
  Lines lines;
  for (const json& unit : units) {
    if (!unit.contains("layers")) {
      AddUnit(unit, "", lines);
      continue;
    }
    const int last = unit["layers"].at(1);
    for (int i = unit["layers"].at(0); i <= last; ++i) AddUnit(unit, fmt::to_string(i), lines);
  }
  return lines;
}

// The unit of a row that is repeated: its layer index moves.
std::string MoveLayer(std::string unit, int by) {
  const LayerIndex layer = FindLayer(unit);
  if (layer.length == 0) return unit;
  const int index = std::stoi(unit.substr(layer.at, layer.length));
  return unit.replace(layer.at, layer.length, fmt::to_string(index + by));
}

// "bwd1" -> "bwd", 1
void SetPhase(const std::string& text, Event& event) {
  const size_t digits = text.find_first_of("0123456789");
  event.phase = text.substr(0, digits);
  if (digits != std::string::npos) event.micro_batch = std::stoi(text.substr(digits));
}

std::string CollectiveKind(const std::string& row) {
  return row == "AG" ? "all_gather" : row == "RS" ? "reduce_scatter" : "all_reduce";
}

Event CollectiveEvent(const json& row, int moved) {
  Event event;
  event.kind = CollectiveKind(row.at(0));
  event.unit = MoveLayer(row.at(1), moved);
  event.elems_in = row.at(2);
  event.elems_out = row.at(3);
  event.dtype = DTypeText(row.at(4));
  event.group = row.at(5);
  event.how = row.at(6);
  SetPhase(row.at(7), event);
  return event;
}

std::vector<Event> Collectives(const json& rows) {
  std::vector<Event> events;
  for (const json& row : rows) {
    if (row.is_array()) {
      events.push_back(CollectiveEvent(row, 0));
      continue;
    }
    const int n = row.at("n");
    const int step = row.at("d");
    for (int i = 0; i < n; ++i) {
      for (const json& inner : row.at("rows")) events.push_back(CollectiveEvent(inner, i * step));
    }
  }
  return events;
}

// Rows are [event, unit, phase, bytes alive, maximum since the previous].
std::vector<Event> Kinds(const json& rows) {
  std::vector<Event> events;
  for (const json& row : rows) {
    if (!IsModelled(row.at(0))) continue;
    Event event;
    event.kind = row[0];
    event.unit = TextOr(row.at(1), "");
    SetPhase(row.at(2), event);
    event.memory = row.at(3).get<int64_t>();
    events.push_back(std::move(event));
  }
  return events;
}

// Whole models were recorded on fake CPU tensors, where LayerNorm keeps its statistics in the
// input's dtype; on CUDA, which these runs stand for, they are fp32.
void CorrectStatistics(SavedTensor& tensor) {
  if (tensor.op != "native_layer_norm" || tensor.shape.back() != 1 || tensor.dtype != "bf16") {
    return;
  }
  tensor.dtype = "fp32";
  tensor.bytes *= 2;
}

Lines Saved(const json& rows) {
  std::vector<SavedTensor> saved;
  for (const json& row : rows) {
    SavedTensor tensor{TextOr(row.at(0), ""), row.at(1), row.at(2),
                       DTypeText(row.at(3)),  row.at(4), row.at(5)};
    CorrectStatistics(tensor);
    saved.push_back(std::move(tensor));
  }
  return SavedLines(saved);
}

}  // namespace

Record WholeRecord(const json& document) {
  Record record;
  record.units = UnitLines(document.at("units"));
  record.events[1] = Collectives(document.at("collectives_it1"));
  if (document.at("collectives_it0_identical") == true) record.events[0] = record.events[1];
  record.kinds = Kinds(document.at("memory").at("events_it1"));
  record.saved = Saved(document.at("memory").at("saved_activations"));
  return record;
}

}  // namespace foreshard::golden
