// What a run did, in one form for a recorded trace and for a plan: lists of short lines, so that
// comparing is comparing text and a difference reads as itself.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::golden {

using Lines = std::vector<std::string>;

// Bytes alive by what holds them: "unsharded_grad layers.1".
using Alive = std::map<std::string, int64_t>;

// One of the steps that both sides know, in host issue order.
struct Event {
  std::string phase;    // "fwd", "bwd", "clip"
  int micro_batch = 0;  // of fwd and bwd
  std::string kind;     // as the traces call it: "cast_shard", "all_gather", ...
  std::string unit;
  int64_t elems_in = 0;
  int64_t elems_out = 0;
  std::string from;  // dtype before a cast
  std::string dtype;
  int64_t group = 0;
  std::string how;                // reason of a gather, operator and factors of a reduction, ...
  int64_t position = -1;          // the trace's index, the plan's op in its program
  Alive alive = {};               // of the managed categories when it is issued; small traces only
  std::optional<int64_t> memory;  // bytes alive of all recorded categories then
};

struct Record {
  Lines units;
  std::vector<Event> events[3];   // by iteration; whole models: collectives of iteration 1
  std::vector<Event> kinds;       // iteration 1 with kind, unit and memory alone; whole models only
  int64_t largest_temporary = 0;  // plans only
  Lines saved;                    // what is alive when the forward of iteration 1 ends
};

// Of a recorded trace. Throws nlohmann::json::exception for a file that is not of its schema.
Record RecordOf(const nlohmann::json& document);

// The two schemas.
Record SmallRecord(const nlohmann::json& document);
Record WholeRecord(const nlohmann::json& document);

// Of a plan on one rank, told as the trace is: one program after the other, the last for all later
// iterations.
struct PlanRecordOptions {
  int rank = 0;
  bool whole_model = false;   // folds layers, and says what is resharded but not what is alive
  bool has_recycle = true;    // traces of torch 2.6 have no "rs_recycle"
  bool has_recompute = true;  // those of transformers' own checkpoints have no "recompute"
};
Record RecordOf(const pb::Plan& plan, const PlanRecordOptions& options);

// True for the kinds that a plan has too. The host waits where an event gives it leave to go on:
// traces name the unit that was freed, here it is in Event::how.
bool IsModelled(const std::string& kind);
std::string FreeText(const std::string& unit, const std::string& phase, int micro_batch,
                     int steps_ago);

// What FSDP itself manages: all but activations, temporaries and what only a plan lists.
bool IsManaged(const std::string& category);
// False for what only a plan lists.
bool IsRecorded(const std::string& category);

// "bwd0 all_gather layers.1: 8224 -> 32896 bf16 x4, backward"
std::string Line(const Event& event);
std::string KindLine(const Event& event);

// The first element of a module path that is a number: where it starts and how long it is; length 0
// when there is none. Joined names ("layers.0+layers.1") count as one path.
struct LayerIndex {
  size_t at = 0;
  size_t length = 0;
};
LayerIndex FindLayer(std::string_view path);

struct UnitLine {
  std::string name;
  int64_t numel = 0;
  int64_t padded_shard_numel = 0;
  int64_t gathered_numel = 0;
  std::string reshard{};  // "true", "false", "4"; "" where traces do not say
};
struct ParameterLine {
  std::string path;
  std::vector<int64_t> shape;
  std::vector<int64_t> local_shape;  // of the rank, without padding
  int64_t padded_shard_numel = 0;
  int64_t shard_dim = 0;
  std::vector<std::string> shared_with;
};
// With flat parameters.
struct FlatUnitLine {
  std::string name;
  int64_t numel = 0;
  int64_t flat_numel = 0;
  int64_t padded_shard_numel = 0;
  int64_t end_padding = 0;  // of the rank's shard
  bool sharded = true;
  bool trained = true;
};
struct FlatParameterLine {
  std::string path;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  bool trained = true;
  std::vector<std::string> shared_with;
};
std::string Line(const UnitLine& unit);
std::string Line(const ParameterLine& parameter);
std::string Line(const FlatUnitLine& unit);
std::string Line(const FlatParameterLine& parameter);

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
