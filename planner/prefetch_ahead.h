// Explicit prefetch by a number of units, as the lists by module that PyTorch takes.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/wrap.h"

namespace foreshard {

// Where forward_prefetch_ahead or backward_prefetch_ahead is above 0, makes its lists: for every
// unit in the order in which forwards begin, or backwards (the reverse of that in which forwards
// end), the next so many. Units without parameters are left out.
void ListPrefetchAhead(const ModelGraph& graph, const std::vector<Unit>& units,
                       PlanRequest& request);

}  // namespace foreshard
