// How a unit's parameters are cut over the ranks, and the resident buffers of that.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/lower/plan_builder.h"
#include "planner/wrap.h"

namespace foreshard {

// One parameter of a unit: every rank stores the same number of slices along a dimension, the first
// if not asked otherwise, the last ranks' padded with zeros.
struct ShardedParameter {
  int parameter = kNone;     // index in the graph
  int64_t numel = 0;         // unsharded
  int64_t padded_numel = 0;  // ceil(slices / ranks) * size of one
  int64_t local_numel = 0;   // real elements on rank 0
  int shard_dim = 0;
  bool frozen = false;
  BufferId shard = -1;
};

struct UnitLayout {
  std::vector<ShardedParameter> parameters;  // layout order
  int64_t numel = 0;
  int64_t padded_numel = 0;       // S_u
  int64_t grad_padded_numel = 0;  // the part with a gradient
};

// How parameters are cut, and where the shards are.
struct ShardingPlace {
  int ranks = 1;  // in the shard group
  DType original = DType::kFp32;
  StreamId stream = 0;  // owns the resident memory
  bool on_host = false;
  std::vector<int> shard_dims;  // per parameter of the graph; empty = dim 0 of all
};

// Writes parameters, units and shards into the plan.
std::vector<UnitLayout> LayOut(const ModelGraph& graph, const std::vector<Unit>& units,
                               const ShardingPlace& place, PlanBuilder& builder);

// Real elements of a parameter of `shape` on `rank` of `ranks`, cut along `dim`.
int64_t LocalNumel(const Dims& shape, int dim, int ranks, int rank);

}  // namespace foreshard
