// Wrap policies against what FullyShardedDataParallel did with them.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/golden/golden_record.h"

namespace foreshard::golden {

// True for records of policies alone.
bool IsWrapPolicy(const nlohmann::json& document);

// One text for each policy whose wrapped modules, or their parameters, are not those recorded. May
// throw nlohmann::json::exception for a file that is not of its schema.
Lines WrapDifferences(const nlohmann::json& document);

}  // namespace foreshard::golden
