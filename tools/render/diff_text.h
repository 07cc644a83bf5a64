// Two reports side by side, for people.
#pragma once

#include <string>
#include <vector>

#include "tools/report_diff.h"

namespace foreshard {

// Sections of differences, equal figures left out. Lines of at most `width` columns where names
// leave room.
std::string RenderDifferences(const std::string& name_a, const pb::Report& a,
                              const std::string& name_b, const pb::Report& b,
                              const std::vector<Difference>& differences, int width);

}  // namespace foreshard
