// Questions about a model graph that its DAG answers.
#pragma once

#include <vector>

#include "planner/graph/model_graph.h"

namespace foreshard {

// Per value: whether a gradient flows through it, that is whether it is reachable from an op with a
// trainable parameter or from an input that requires one.
std::vector<bool> ValuesNeedingGrad(const ModelGraph& graph);

// A trainable parameter that the first output does not depend on, or kNone. Its gradient would be
// missing from every reduction.
int UnusedParameter(const ModelGraph& graph);

// Floating-point operations of the matrix products and attention of one forward, multiply-add = 2,
// attention counted in full (not halved for causality).
double ForwardMatmulFlops(const ModelGraph& graph);

}  // namespace foreshard
