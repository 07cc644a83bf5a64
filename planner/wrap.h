// The units that calls of fully_shard make.
#pragma once

#include <string>
#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/plan.h"

namespace foreshard {

// What is gathered at once, before any lowering.
struct Unit {
  std::string name;             // paths joined by "+", "<root>" for the model
  std::vector<int> modules;     // that the call named, call order
  std::vector<int> parameters;  // layout order
  std::optional<Reshard> reshard_after_forward;
  bool is_root = false;
};

// The units of the calls, in named_modules order, as PyTorch assigns parameters: a call manages
// what lies below its modules and in no unit made before it, children before parents. A root
// without parameters is still a unit. Refuses what PyTorch refuses: a missing module, a container
// without forward, the same module twice, a tensor shared by two units, no call on the model.
StatusOr<std::vector<Unit>> MakeUnits(const ModelGraph& graph,
                                      const std::vector<WrapRequest>& calls);

// Per module, the unit with parameters of its nearest wrapped ancestor (itself included), else
// kNone.
std::vector<int> UnitOfModules(const ModelGraph& graph, const std::vector<Unit>& units);

}  // namespace foreshard
