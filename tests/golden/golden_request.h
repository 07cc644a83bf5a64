// From the question of a recorded run to the planner's. Both functions may throw
// nlohmann::json::exception for a file that is not of its schema.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "planner/plan.h"

namespace foreshard::golden {

PlanRequest CaseRequest(const nlohmann::json& document);  // of a small trace
PlanRequest SpecRequest(const nlohmann::json& document);  // of a whole model

// A whole model's config.json, with what the run changed in it.
nlohmann::json ConfigOf(const nlohmann::json& spec);

// true, false, a number; absent or null = not given.
std::optional<Reshard> ReshardOf(const nlohmann::json& options, const char* name);

// What both schemas say in the same words: ranks, dtypes, optimizer, micro-batches.
void SetCommon(const nlohmann::json& document, const nlohmann::json& options, PlanRequest& request);

}  // namespace foreshard::golden
