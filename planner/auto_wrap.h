// The walk of PyTorch's auto wrap policies (torch.distributed.fsdp.wrap, _recursive_wrap) over a
// module tree, and the policies themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/graph/model_graph.h"

namespace foreshard {

// Asked before the children of a module are walked (`recurse`) and after.
struct WrapQuestion {
  const GraphModule& module;
  bool recurse;
  // Elements of its parameters, at any depth and each tensor once: all of them before, those in no
  // child that was wrapped after.
  int64_t nonwrapped_numel;
  int64_t numel;  // of all of them, as they are by now
};
using AutoWrapPolicy = std::function<bool(const WrapQuestion&)>;

// Told of each module that is wrapped; may change the elements that parameters have from then on.
using AfterWrap = std::function<void(int module, std::vector<int64_t>& numel_by_parameter)>;

// The modules that are wrapped, children before parents; never the model itself.
std::vector<int> AutoWrap(const ModelGraph& graph, const AutoWrapPolicy& policy,
                          const AfterWrap& after_wrap = {});

// size_based_auto_wrap_policy. Its defaults are PyTorch's: attention is not taken apart (and so
// never wrapped itself), lists are not wrapped.
struct SizePolicy {
  int64_t min_num_params = 100'000'000;
  std::vector<std::string> force_leaf_modules = {"MultiheadAttention"};
  std::vector<std::string> exclude_wrap_modules = {"ModuleList", "ModuleDict"};
};
AutoWrapPolicy SizeBased(SizePolicy policy);

// ModuleWrapPolicy, transformer_auto_wrap_policy, lambda_auto_wrap_policy on classes.
AutoWrapPolicy OfClasses(std::vector<std::string> classes);

// CustomPolicy on modules. REQUIRES: `modules` are in ascending order.
AutoWrapPolicy OfModules(const ModelGraph& graph, std::vector<int> modules);

AutoWrapPolicy Always();                                  // always_wrap_policy
AutoWrapPolicy AnyOf(std::vector<AutoWrapPolicy> parts);  // _or_policy

}  // namespace foreshard
