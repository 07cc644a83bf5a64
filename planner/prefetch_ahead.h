// Explicit prefetch by a number of units, as the lists by module that PyTorch takes.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"
#include "planner/wrap.h"

namespace foreshard {

// Per unit in the order in which forwards begin, the next `ahead` units. Units without parameters
// are left out.
std::vector<PrefetchRequest> ForwardPrefetchAhead(const ModelGraph& graph,
                                                  const std::vector<Unit>& units, int ahead);

// Likewise for backwards, which begin in the reverse of the order in which forwards end.
std::vector<PrefetchRequest> BackwardPrefetchAhead(const ModelGraph& graph,
                                                   const std::vector<Unit>& units, int ahead);

}  // namespace foreshard
