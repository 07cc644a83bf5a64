// Reports as comma-separated values (RFC 4180), for spreadsheets.
#pragma once

#include <string>

namespace foreshard::pb {
class ReportTable;
}

namespace foreshard {

// A header and one line for each report, in their order. Names of columns end in their unit; bytes
// and picoseconds are integers.
std::string RenderCsv(const pb::ReportTable& table);

}  // namespace foreshard
