// Two peaks side by side, for people.
#pragma once

#include <string>

#include "tools/peak_diff.h"

namespace foreshard {

std::string RenderPeakDiff(const std::string& name_a, const pb::Report& a,
                           const std::string& name_b, const pb::Report& b, const PeakDiff& diff,
                           int width);

}  // namespace foreshard
