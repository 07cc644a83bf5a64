// Differences between what a trace recorded and what a plan and its simulation say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "tests/golden/golden_record.h"

namespace foreshard::golden {

// One text for each part that differs; none when the plan does what was recorded. May throw
// nlohmann::json::exception for a file that is not of its schema.
Lines Differences(const nlohmann::json& document, const pb::Plan& plan, const pb::Report& report);

// The memory part: managed peaks, what is alive at the ends of phases, and, where both sides peak
// at the same place, what is alive there; for whole models the total peaks within 1 %.
Lines MemoryDifferences(const nlohmann::json& document, const pb::Plan& plan,
                        const pb::Report& report);

// The first line in which two lists differ, with a few lines around it; "" when they are equal.
std::string FirstDifference(std::string_view title, const Lines& recorded, const Lines& planned);

}  // namespace foreshard::golden
