// Why a report says what it says, for people: everything alive at the peak, unit by unit.
#pragma once

#include <string>

namespace foreshard::pb {
class Report;
}

namespace foreshard {

// Lines of at most `width` columns. Every number is a field of the report, or a sum or ratio.
std::string RenderExplanation(const pb::Report& report, int width);

}  // namespace foreshard
