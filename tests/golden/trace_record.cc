// The record of a small trace: every event, and what is alive when it is issued.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "tests/golden/golden_record.h"
#include "tests/golden/trace_text.h"

namespace foreshard::golden {
namespace {

using nlohmann::json;

// Flat parameters are listed with the padding between them, paths of tied ones within the unit as
// "weight:head".
void AddFlatLines(const json& unit, Lines& lines) {
  if (unit.at("params").empty()) return;
  const int64_t shard = unit.at("padded_shard_numel");
  lines.push_back(Line(
      FlatUnitLine{unit.at("name"), unit.at("numel"), unit.at("flat_numel_with_alignment_padding"),
                   shard, unit.at("shard_end_padding"), unit.at("sharding_strategy") != "NO_SHARD",
                   unit.at("unit_flat_requires_grad")}));
  const std::string prefix = unit["name"] == "<root>" ? "" : unit["name"].get<std::string>() + ".";
  const auto path = [&](const std::string& name) {
    const size_t colon = name.find(':');
    const std::string module = name.substr(colon + 1);
    return prefix + (module.empty() ? "" : module + ".") + name.substr(0, colon);
  };
  int64_t offset = 0;
  for (const json& p : unit["params"]) {
    if (p.contains("pad")) {
      offset += p["pad"].get<int64_t>();
      continue;
    }
    FlatParameterLine line{p.at("name"), p.at("shape"), offset, p.at("requires_grad"), {}};
    for (const json& pair : unit.value("shared", json::array())) {
      if (path(pair.at(1)) == line.path) line.shared_with.push_back(path(pair.at(0)));
    }
    lines.push_back(Line(line));
    offset +=
        std::accumulate(line.shape.begin(), line.shape.end(), int64_t{1}, std::multiplies<>());
  }
}

Lines UnitLines(const json& units, bool flat) {
  Lines lines;
  for (const json& unit : units) {
    if (flat) {
      AddFlatLines(unit, lines);
      continue;
    }
    lines.push_back(Line(UnitLine{unit.at("name"), unit.at("numel"), unit.at("padded_shard_numel"),
                                  unit.at("gathered_numel")}));
    for (const json& p : unit.at("params")) lines.push_back(Line(ParameterOf(p)));
  }
  return lines;
}

// "PREMUL_SUM by 1/2, predivide 4, postdivide 2". A factor of 1 divides nothing.
std::string ReductionText(const json& e) {
  std::string text = e.at("op");
  if (text == "PREMUL_SUM") {
    text += fmt::format(" by 1/{}", e.at("divide_factor").get<double>());
  }
  for (const char* factor : {"predivide", "postdivide"}) {
    const double value = e.value(factor, 1.0);
    if (value != 1) text += fmt::format(", {} {}", factor, value);
  }
  return text;
}

// "layers.0.w1.weight at 128 times 0.5"
std::string MoveText(const json& e) {
  std::string text =
      fmt::format("{} at {}", e.at("parameter").get<std::string>(), e.at("offset").get<int64_t>());
  if (e.contains("factor")) text += fmt::format(" times {}", e["factor"].get<double>());
  return e.value("in_place", false) ? text + ", accumulate" : text;
}

std::string GatherText(const json& e) {
  const std::string reason = e.at("reason");
  const bool flat = reason == "prefetch_forward" || reason == "prefetch_backward";
  return flat ? reason + "_implicit" : reason;
}

std::string HowText(const json& e, bool is_late) {
  const std::string kind = e.at("k");
  if (kind.starts_with("bucket_copy")) return MoveText(e);
  if (kind == "broadcast") {
    return fmt::format("{} from {}", e.at("parameter").get<std::string>(), e.at("root").get<int>());
  }
  if (kind == "all_gather") return GatherText(e);
  if (kind == "cpu_wait") {
    return FreeText(e.at("free_event_of"), e.at("free_phase"), e.at("free_mb"),
                    e.at("it").get<int>() - e.at("free_it").get<int>());
  }
  if (kind == "reduce_scatter") return ReductionText(e);
  if (kind == "all_reduce") return e.at("op");
  if (kind == "reshard" && e.value("to", "sharded") != "sharded") return e.at("to");
  if (kind == "rs_copy_in" && is_late) return "late";
  if (kind == "grad_finalize" && e.value("accumulate", false)) return "accumulate";
  return "";
}

Event EventOf(const json& e, bool is_late) {
  Event event;
  event.phase = e.at("ph");
  event.micro_batch = e.value("mb", 0);
  event.kind = e.at("k");
  event.unit = e.value("unit", "");
  event.elems_in = e.value("elems_in", int64_t{0});
  event.elems_out = e.value("elems_out", int64_t{0});
  if (e.contains("dtype_in")) event.from = DTypeText(e["dtype_in"]);
  if (e.contains("dtype")) event.dtype = DTypeText(e["dtype"]);
  event.group = e.value("group_size", int64_t{0});
  event.how = HowText(e, is_late);
  event.position = e.at("i");
  event.memory = e.at("mem").get<int64_t>();
  return event;
}

// Rows are [category, unit, a, f, count, bytes]: alive at event e if a < e <= f.
Alive AliveAt(const json& document, int64_t event) {
  const bool whole_gradients = KeepsWholeGradients(document);
  Alive alive;
  for (const json& row : document.at("memory").at("buffers")) {
    std::string category = row.at(0);
    if (whole_gradients) category = WholeGradientText(category);
    if (!IsManaged(category) || row.at(2) >= event) continue;
    if (!row.at(3).is_null() && row[3] < event) continue;
    alive[HolderText(category, TextOr(row.at(1), ""))] += row.at(5).get<int64_t>();
  }
  return alive;
}

// What has no op in a plan: the partial sums that all-reduces of a later micro-batch will take up
// stay where the reduction has put them, and a reshard that gives nothing back.
bool IsLogOnly(const json& e, bool frees_casts) {
  if (e.at("k") == "reshard" && !frees_casts && !e.value("free", true)) return true;
  return !IsModelled(e.at("k")) || (e.at("k") == "grad_finalize" && e.value("partial", false));
}

Lines Saved(const json& rows) {
  std::vector<SavedTensor> saved;
  for (const json& row : rows) {
    saved.push_back(
        {TextOr(row.at(0), ""), row.at(1), row.at(2), DTypeText(row.at(3)), row.at(4), 1});
  }
  return SavedLines(saved);
}

// Without shards, what every reshard gives back is the copy in the compute dtype.
bool FreesCasts(const json& document) {
  const json& unit = document.at("units").at(0);
  return unit.value("sharding_strategy", "") == "NO_SHARD" &&
         !document.at("case").at("mixed_precision").at("param").is_null();
}

}  // namespace

Record SmallRecord(const json& document) {
  Record record;
  const bool flat = document.at("case").at("fsdp") == 1;
  record.units = UnitLines(document.at("units"), flat);
  const bool frees_casts = flat && FreesCasts(document);
  const json& memory = document.at("memory");
  std::set<std::string> late;  // units whose post-backward is the end callback's
  for (const json& e : document.at("events")) {
    const std::string unit = e.value("unit", "");
    if (e.at("k") == "post_backward") {
      late.erase(unit);
      if (e.value("late", false)) late.insert(unit);
    }
    if (IsLogOnly(e, frees_casts)) continue;
    Event event = EventOf(e, late.contains(unit));
    event.alive = AliveAt(document, event.position);
    const size_t iteration = e.at("it");
    record.events[std::min<size_t>(iteration, 2)].push_back(std::move(event));
  }
  record.saved = Saved(memory.at("saved_activations"));
  return record;
}

Record RecordOf(const json& document) {
  return document.contains("spec") ? WholeRecord(document) : SmallRecord(document);
}

}  // namespace foreshard::golden
