// Two joined reports for people.
#pragma once

#include <string>

#include "tools/report_join.h"

namespace foreshard {

// Lines of at most `width` columns where names leave room. Bytes are whole, times rounded.
std::string RenderJoin(const NamedReport& a, const NamedReport& b, const ReportJoin& join,
                       int width);

}  // namespace foreshard
