// Two joined reports for programs: the schema of docs/compare.md.
#pragma once

#include <string>

#include "tools/report_join.h"

namespace foreshard {

// Ends in a newline; bytes that are no UTF-8 (names of files may be any) are replaced.
std::string JoinAsJson(const NamedReport& a, const NamedReport& b, const ReportJoin& join);

}  // namespace foreshard
