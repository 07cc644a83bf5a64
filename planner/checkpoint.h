// Checkpoint policies: which modules run their forward again in backward.
#pragma once

#include <string>
#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/plan.h"

namespace foreshard {

// The modules in graph order; empty when nothing is checkpointed. kInvalidArgument for policies
// that are unknown or fit nothing, modules that do not exist, have no forward or lie within one
// another, and options that PyTorch refuses or that would do nothing.
StatusOr<std::vector<int>> CheckpointModules(const ModelGraph& graph,
                                             const std::string& block_class,
                                             const CheckpointRequest& request);

// What torchtitan's selective checkpointing saves, with save_every_second_matmul: matrix products,
// attention, reductions.
const std::vector<std::string>& SelectiveSaveOps();

}  // namespace foreshard
