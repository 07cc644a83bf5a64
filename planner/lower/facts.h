// What a plan says about a model beyond memory and time, for whoever runs it: values that tensors
// hold before the first step.
#pragma once

#include <string>

#include "planner/graph/model_graph.h"
#include "planner/lower/plan_builder.h"

namespace foreshard {

// kInvalidInput for numbers in the model that no tensor can be filled with.
Status CheckFacts(const pb::Model& model, const ModelGraph& graph);

// Fills Parameter.initial. REQUIRES: the plan has the graph's parameters, in order.
void AddInitialValues(const pb::Model& model, const ModelGraph& graph, pb::Plan& plan);

// Adds the row of a buffer of the module at `module_path`.
void AddModuleBuffer(const pb::Model& model, const std::string& module_path,
                     const pb::ModelBuffer& source, BufferId buffer, pb::Plan& plan);

}  // namespace foreshard
