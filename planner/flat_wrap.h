// What FullyShardedDataParallel makes of a module tree under an auto_wrap_policy: the modules that
// it wraps, and what the flat parameter of each holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/auto_wrap.h"
#include "planner/graph/model_graph.h"

namespace foreshard {

struct FlatWrapRules {
  bool use_orig_params = false;
  DType compute = DType::kFp32;  // of the gathered flat parameter
  int shard_ranks = 1;
  int rank = 0;  // in its shard group: what is left of a tensor on it counts for policies
};

struct FlatMember {
  int parameter = kNone;
  std::string path;  // from the wrapped module
};

struct FlatModule {
  int module = kNone;
  std::vector<FlatMember> members;  // flat order; empty = nothing to gather
};

// Those that are wrapped and the model itself, in named_modules order. Tensors that several modules
// share are where PyTorch leaves them, although nothing can be trained then unless it is one flat
// parameter: with the original parameters the module that is wrapped first has them alone; without,
// every flat parameter has a copy of its own. kInvalidArgument for a flat parameter that is frozen
// in part, which needs the original parameters.
StatusOr<std::vector<FlatModule>> WrapFlat(const ModelGraph& graph, const AutoWrapPolicy& policy,
                                           const FlatWrapRules& rules);

}  // namespace foreshard
