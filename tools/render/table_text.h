// Reports of several choices, one a line, for people.
#pragma once

#include <string>

namespace foreshard::pb {
class ReportTable;
}

namespace foreshard {

// The choices that vary, and the wrap policy, are columns; what is common stands above, and what
// all assume below. Rows keep their order. Lines of at most `width` columns where the choices
// leave room. REQUIRES: at least one report.
std::string RenderTable(const pb::ReportTable& table, int width);

}  // namespace foreshard
