// The units of a report, repeated ones as one line.
#pragma once

#include <string>

#include "tools/render/figures.h"

namespace foreshard::pb {
class Report;
class UnitReport;
}  // namespace foreshard::pb

namespace foreshard {

// A table, each line one unit or what each of several equal ones does; "" without units.
std::string UnitsText(const pb::Report& report, const Style& style);

// Equal to the byte, and in time up to 1 %; names aside. The time that parameters are resident by
// the host's clock differs from unit to unit and does not count.
bool UnitsAlike(const pb::UnitReport& a, const pb::UnitReport& b);

int64_t TimeInFlight(const pb::UnitReport& unit);
int64_t TimeExposed(const pb::UnitReport& unit);

}  // namespace foreshard
