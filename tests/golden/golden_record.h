// What a run did, in one form for a recorded trace and for a plan: lists of short lines, so that
// comparing is comparing text and a difference reads as itself.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::golden {

using Lines = std::vector<std::string>;

// One of the steps that both sides know, in host issue order.
struct Event {
  std::string phase;  // "fwd", "bwd"
  std::string kind;   // as the traces call it: "cast_shard", "all_gather", ...
  std::string unit;
  int64_t elems_in = 0;
  int64_t elems_out = 0;
  std::string from;  // dtype before a cast
  std::string dtype;
  int64_t group = 0;
  std::string how;  // reason of a gather, operator of a reduction
};

struct Record {
  Lines units;
  std::vector<Event> events[2];  // iteration 0 and 1
  Lines kinds;                   // iteration 1: kind and unit of each event, nothing else
  Lines saved;                   // what is alive when the forward of iteration 1 ends
};

// Of a recorded trace. Throws nlohmann::json::exception for a file that is not of its schema.
Record RecordOf(const nlohmann::json& document);

// Of a plan: programs `first` and `steady`. `fold_layers` counts saved activations over all layers,
// as traces of whole models do.
Record RecordOf(const pb::Plan& plan, bool fold_layers);

// As the traces call it: "fwd", "bwd", "opt", "zero".
std::string PhaseName(pb::Phase phase);

// The event of an op; its kind is empty when the traces have none for it.
Event EventOf(const pb::Plan& plan, const pb::Op& op);

// "bwd all_gather layers.1: 8224 -> 32896 bf16 x4, backward"
std::string Line(const Event& event);
std::string KindLine(const Event& event);

// The first element of a module path that is a number: where it starts and how long it is; length 0
// when there is none. Joined names ("layers.0+layers.1") count as one path.
struct LayerIndex {
  size_t at = 0;
  size_t length = 0;
};
LayerIndex FindLayer(std::string_view path);

// True for the kinds that a plan has too.
bool IsModelled(const std::string& kind);

struct UnitLine {
  std::string name;
  int64_t numel = 0;
  int64_t padded_shard_numel = 0;
  int64_t gathered_numel = 0;
};
struct ParameterLine {
  std::string path;
  std::vector<int64_t> shape;
  int64_t padded_shard_numel = 0;
  std::vector<std::string> shared_with;
};
std::string Line(const UnitLine& unit);
std::string Line(const ParameterLine& parameter);

struct SavedTensor {
  std::string module;
  std::string op;
  std::vector<int64_t> shape;
  std::string dtype;
  int64_t bytes = 0;
  int64_t count = 1;
};
// Counts equal tensors; lines in order of their text.
Lines SavedLines(const std::vector<SavedTensor>& saved);

}  // namespace foreshard::golden
