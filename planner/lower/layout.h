// How a unit's parameters are cut over the ranks, and the resident buffers of that.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/lower/plan_builder.h"
#include "planner/wrap.h"

namespace foreshard {

// One parameter of a unit, sharded along dim 0: every rank stores the same number of rows, the last
// ranks' padded with zeros.
struct ShardedParameter {
  int parameter = kNone;     // index in the graph
  int64_t numel = 0;         // unsharded
  int64_t padded_numel = 0;  // ceil(rows / ranks) * row size
  int64_t local_numel = 0;   // real elements on rank 0
  bool frozen = false;
  BufferId shard = -1;
};

struct UnitLayout {
  std::vector<ShardedParameter> parameters;  // layout order
  int64_t numel = 0;
  int64_t padded_numel = 0;       // S_u
  int64_t grad_padded_numel = 0;  // the part with a gradient
};

// Writes parameters, units and shards into the plan. `shard_stream` owns the resident memory.
std::vector<UnitLayout> LayOut(const ModelGraph& graph, const std::vector<Unit>& units,
                               int shard_ranks, DType original, StreamId shard_stream,
                               PlanBuilder& builder);

// Real elements of a parameter of `shape` on `rank` of `ranks`.
int64_t LocalNumel(const Dims& shape, int ranks, int rank);

}  // namespace foreshard
