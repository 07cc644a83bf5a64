// Shapes of the results of each kind of graph operation.
#pragma once

#include "planner/graph/model_graph.h"

namespace foreshard {

// Fills `results` with one value per output of `op`, whose `in` and `params` are set.
Status InferShapes(const ModelGraph& graph, const GraphOp& op, int outputs,
                   std::vector<GraphValue>* results);

}  // namespace foreshard
