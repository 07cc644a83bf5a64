// A report on one screen, for people.
#pragma once

#include <string>

namespace foreshard::pb {
class Report;
}

namespace foreshard {

// Lines of at most `width` columns. Every number is a field of the report, or the ratio or sum of
// fields that stand beside it.
std::string RenderText(const pb::Report& report, int width);

}  // namespace foreshard
