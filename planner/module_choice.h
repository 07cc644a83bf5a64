// Choosing modules of a model by class, place or path, for the policies that do. Errors are
// kInvalidArgument and start with `what`: "wrap", "checkpoint".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/graph/model_graph.h"

namespace foreshard {

// Whether all of `path` fits: "*" stands for any characters of one name, "**" for any characters.
// "layers.*" is each layer, "layers.*.mlp" each layer's mlp, "**.mlp" every mlp.
// O(|pattern| * |path|) time.
bool MatchesPath(std::string_view pattern, std::string_view path);

// "A,B" as "A" and "B".
std::vector<std::string> SplitAtCommas(std::string_view list);
std::vector<std::string> SplitAt(char separator, std::string_view list);

// The module at `path`; of paths that lead nowhere, what was probably meant.
StatusOr<int> ModuleAt(const ModelGraph& graph, const std::string& path, const char* what);

// All modules of a class but the model itself, in graph order; at least one.
StatusOr<std::vector<int>> ModulesOfClass(const ModelGraph& graph, const std::string& class_name,
                                          const char* what);

// Those of the model's block class.
StatusOr<std::vector<int>> Blocks(const ModelGraph& graph, const std::string& block_class,
                                  const char* what);

// The modules but the model itself that one of `patterns` fits ("A,B"), in graph order. Each
// pattern fits at least one.
StatusOr<std::vector<int>> ModulesMatching(const ModelGraph& graph, std::string_view patterns,
                                           const char* what);

// The K of "every:K", at least 1.
StatusOr<size_t> ParseEvery(const std::string& text, const char* what);

// Refuses lists of modules, which have no forward.
Status CheckHasForward(const ModelGraph& graph, int module, const char* what);

}  // namespace foreshard
