// The walk of PyTorch's auto wrap policies (torch.distributed.fsdp.wrap, _recursive_wrap) over a
// module tree.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/graph/model_graph.h"

namespace foreshard {

// Asked before the children of a module are walked (`recurse`), with the elements of all of its
// parameters, and after, with those in no child that was wrapped.
using AutoWrapPolicy = std::function<bool(const GraphModule& module, bool recurse, int64_t numel)>;

// The modules that are wrapped, children before parents; never the model itself.
std::vector<int> AutoWrap(const ModelGraph& graph, const AutoWrapPolicy& policy);

// size_based_auto_wrap_policy with its default classes: what reaches `min_numel` elements, but for
// attention that is not to be taken apart, and lists.
AutoWrapPolicy SizeBased(int64_t min_numel);

// lambda_auto_wrap_policy on classes.
AutoWrapPolicy OfClasses(std::vector<std::string> classes);

}  // namespace foreshard
