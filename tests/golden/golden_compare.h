// Differences between what a trace recorded and what a plan and its simulation say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "proto/plan.pb.h"
#include "proto/report.pb.h"
#include "tests/golden/golden_record.h"

namespace foreshard::golden {

struct Comparison {
  Lines differences;  // one text for each part that differs; none when the plan does what was
                      // recorded
  std::string info;   // how close the bytes that nobody promises to be equal are
};

// May throw nlohmann::json::exception for a file that is not of its schema.
Comparison Compare(const nlohmann::json& document, const pb::Plan& plan, const pb::Report& report);

// The memory of phases: managed peaks, what is alive at the ends, and, where both sides peak at the
// same place, what is alive there; total peaks within a tolerance. `planned` has the plan's events.
Lines PhaseDifferences(const nlohmann::json& document, const pb::Plan& plan, const Record& planned,
                       const pb::Report& report);

// What is alive at each event. REQUIRES: both lists have the same events.
Lines AliveDifferences(std::string_view title, const std::vector<Event>& recorded,
                       const std::vector<Event>& planned);

// Whether total bytes, which include temporaries, are as close as they should be: whole models
// within 1 %, as the traces leave out what only an allocator sees and a peak may then lie
// elsewhere; small ones within 3 % or the largest temporary, as one too many is a large share of
// theirs.
bool IsCloseTotal(int64_t recorded, int64_t planned, const Record& plan, bool whole_model);

// Total bytes at the events of both lists, which are the same.
struct TotalComparison {
  Lines differences;  // the first event where they are not close
  std::string info;   // in how many they are equal, and how far apart the worst is
};
TotalComparison CompareTotals(const std::vector<Event>& recorded, const std::vector<Event>& planned,
                              const Record& plan, bool whole_model);

// The first line in which two lists differ, with a few lines around it; "" when they are equal.
std::string FirstDifference(std::string_view title, const Lines& recorded, const Lines& planned);

}  // namespace foreshard::golden
