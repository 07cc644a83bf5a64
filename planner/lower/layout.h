// How a unit's parameters are cut over the ranks, and the resident buffers of that.
#pragma once

#include <optional>
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
  int64_t flat_offset = 0;  // in a flat parameter
};

// A unit's parameters in one tensor.
struct FlatLayout {
  int64_t numel = 0;  // with what stands between parameters
  BufferId shard = -1;
  bool frozen = true;
};

struct UnitLayout {
  std::vector<ShardedParameter> parameters;  // layout order
  int64_t numel = 0;
  int64_t padded_numel = 0;       // S_u
  int64_t grad_padded_numel = 0;  // the part with a gradient
  std::optional<FlatLayout> flat;
};

// How units are made flat, where they are.
struct FlatRule {
  bool by_parameter = false;  // the optimizer sees parameters
  int64_t aligned = 1;        // elements that divide where a parameter starts
  int64_t multiple = 1;       // padding makes the whole one of this
};

// Elements at a multiple of which the original parameters of a flat one start, so that kernels read
// them without a copy.
int64_t FlatAlignment(DType compute);

// How parameters are cut, and where the shards are.
struct ShardingPlace {
  int ranks = 1;  // in the shard group
  DType original = DType::kFp32;
  StreamId stream = 0;  // owns the resident memory
  bool on_host = false;
  std::vector<int> shard_dims;  // per parameter of the graph; empty = dim 0 of all
  std::optional<FlatRule> flat;
};

// Writes parameters, units and shards into the plan.
std::vector<UnitLayout> LayOut(const ModelGraph& graph, const std::vector<Unit>& units,
                               const ShardingPlace& place, PlanBuilder& builder);

// What the optimizer takes for one parameter: `size` elements times those of the slices from
// `begin` to `end` of which rank r has the r-th `each`.
struct OptimizerTensor {
  int unit = kNone;
  BufferId shard = -1;
  int64_t begin = 0, end = 0, each = 0, size = 1;
  int64_t NumelOn(int rank) const;
};

// The trainable ones, in named_parameters order; of flat parameters that the optimizer updates as a
// whole, in the order of their units.
std::vector<OptimizerTensor> OptimizerTensors(const pb::Plan& plan,
                                              const std::vector<UnitLayout>& layouts);

// Real elements of a parameter of `shape` on `rank` of `ranks`, cut along `dim`.
int64_t LocalNumel(const Dims& shape, int dim, int ranks, int rank);

}  // namespace foreshard
