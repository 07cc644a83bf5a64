// The record of a trace: small traces list events, traces of whole models fold layers.
#include <fmt/format.h>

#include "tests/golden/golden_record.h"

namespace foreshard::golden {
namespace {

using nlohmann::json;

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

// "torch.uint64" and "uint64" are one dtype.
std::string DTypeName(const json& name) { return Replace(name.get<std::string>(), "torch.", ""); }

std::string TextOr(const json& value, const std::string& otherwise) {
  return value.is_null() ? otherwise : value.get<std::string>();
}

void AddUnit(const json& unit, const std::string& layer, Lines& lines) {
  lines.push_back(Line(UnitLine{Replace(unit.at("name"), "{i}", layer), unit.at("numel"),
                                unit.at("padded_shard_numel"), unit.at("gathered_numel")}));
  for (const json& p : unit.at("params")) {
    ParameterLine line{
        Replace(p.at("name"), "{i}", layer), p.at("shape"), p.at("padded_shard_numel"), {}};
    if (p.contains("shared_with") && !p["shared_with"].is_null()) {
      line.shared_with = p["shared_with"].get<std::vector<std::string>>();
    }
    lines.push_back(Line(line));
  }
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

Event SmallEvent(const json& e) {
  Event event;
  event.phase = e.at("ph");
  event.kind = e.at("k");
  event.unit = e.value("unit", "");
  event.elems_in = e.value("elems_in", int64_t{0});
  event.elems_out = e.value("elems_out", int64_t{0});
  if (e.contains("dtype_in")) event.from = DTypeName(e["dtype_in"]);
  if (e.contains("dtype")) event.dtype = DTypeName(e["dtype"]);
  event.group = e.value("group_size", int64_t{0});
  if (event.kind == "all_gather") event.how = e.at("reason");
  if (event.kind == "reduce_scatter") event.how = e.at("op");
  if (event.kind == "reshard" && e.at("to") != "sharded") event.how = e.at("to");
  return event;
}

// The unit of a row that is repeated: its layer index moves.
std::string MoveLayer(std::string unit, int by) {
  const LayerIndex layer = FindLayer(unit);
  if (layer.length == 0) return unit;
  const int index = std::stoi(unit.substr(layer.at, layer.length));
  return unit.replace(layer.at, layer.length, fmt::to_string(index + by));
}

Event CollectiveEvent(const json& row, int moved) {
  Event event;
  const std::string kind = row.at(0);
  event.kind = kind == "AG" ? "all_gather" : kind == "RS" ? "reduce_scatter" : kind;
  event.unit = MoveLayer(row.at(1), moved);
  event.elems_in = row.at(2);
  event.elems_out = row.at(3);
  event.dtype = DTypeName(row.at(4));
  event.group = row.at(5);
  event.how = row.at(6);
  event.phase = row.at(7).get<std::string>().substr(0, 3);
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

// Whole models were recorded on fake CPU tensors, where LayerNorm keeps its statistics in the
// input's dtype; on CUDA, which these runs stand for, they are fp32.
void CorrectStatistics(SavedTensor& tensor) {
  if (tensor.op != "native_layer_norm" || tensor.shape.back() != 1 || tensor.dtype != "bf16")
    return;
  tensor.dtype = "fp32";
  tensor.bytes *= 2;
}

// Rows are [module, op, shape, dtype, bytes, ...]; `count_at` is the column of the count, if any.
Lines Saved(const json& rows, bool counted) {
  std::vector<SavedTensor> saved;
  for (const json& row : rows) {
    SavedTensor tensor{TextOr(row.at(0), ""), row.at(1), row.at(2),
                       DTypeName(row.at(3)),  row.at(4), 1};
    if (counted) tensor.count = row.at(5);
    if (counted) CorrectStatistics(tensor);
    saved.push_back(std::move(tensor));
  }
  return SavedLines(saved);
}

Record SmallRecord(const json& document) {
  Record record;
  record.units = UnitLines(document.at("units"));
  for (const json& e : document.at("events")) {
    const int iteration = e.at("it");
    if (iteration > 1 || !IsModelled(e.at("k"))) continue;
    record.events[iteration].push_back(SmallEvent(e));
  }
  for (const Event& event : record.events[1]) record.kinds.push_back(KindLine(event));
  record.saved = Saved(document.at("memory").at("saved_activations"), false);
  return record;
}

Record EndToEndRecord(const json& document) {
  Record record;
  record.units = UnitLines(document.at("units"));
  record.events[1] = Collectives(document.at("collectives_it1"));
  if (document.at("collectives_it0_identical") == true) record.events[0] = record.events[1];
  for (const json& row : document.at("memory").at("events_it1")) {
    const Event event{row.at(2).get<std::string>().substr(0, 3),
                      row.at(0),
                      TextOr(row.at(1), ""),
                      0,
                      0,
                      "",
                      "",
                      0,
                      ""};
    if (IsModelled(event.kind)) record.kinds.push_back(KindLine(event));
  }
  record.saved = Saved(document.at("memory").at("saved_activations"), true);
  return record;
}

}  // namespace

Record RecordOf(const json& document) {
  return document.contains("spec") ? EndToEndRecord(document) : SmallRecord(document);
}

}  // namespace foreshard::golden
