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

// Why the record says nothing about a plan of ours, or "".
std::string WhyNotCompared(const json& document);

// The two inputs of MakePlan, from the case alone. REQUIRES: WhyNotCompared(document) is "".
StatusOr<pb::Model> ModelOf(const json& document);
PlanRequest RequestOf(const json& document);

// The rank that was recorded.
int RankOf(const json& document);

}  // namespace foreshard::golden
