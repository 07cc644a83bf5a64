// One recorded run of real PyTorch as a question to the planner: which model, which request.
// Both file schemas (tests/golden/data/README.md) are read. Functions that take a document may
// throw nlohmann::json::exception for a file that is not of its schema.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/base/status.h"
#include "proto/model.pb.h"

namespace foreshard::golden {

using nlohmann::json;

// Every *.json directly in the folder, in name order.
std::vector<std::filesystem::path> CasesIn(const std::filesystem::path& folder);

StatusOr<json> ReadDocument(const std::filesystem::path& path);

// True for runs of whole models ("spec"), false for small traces ("case").
bool IsEndToEnd(const json& document);

// What the case asks for that no PlanRequest can say, or "".
std::string Unsupported(const json& document);

// The two inputs of MakePlan, from the case alone. REQUIRES: Unsupported(document) is "".
StatusOr<pb::Model> ModelOf(const json& document);
PlanRequest RequestOf(const json& document);

}  // namespace foreshard::golden
