// Parts of a report as text, for the renderers that put them together. Each ends in a newline, and
// all but the headline begin with an empty line; what the report lacks is an empty string.
#pragma once

#include <string>

#include "tools/render/figures.h"

namespace foreshard::pb {
class Fit;
class OpRef;
class HostMemory;
class Peak;
class Report;
class Setup;
}  // namespace foreshard::pb

namespace foreshard {

std::string HeadlineText(const pb::Report& report, const Style& style);
std::string FitText(const pb::Fit& fit, const Style& style);
// What training keeps on a rank at the end of a steady backward, and how much of the whole that is;
// "" where the report does not say.
std::string StateText(const pb::Report& report, const Style& style);
std::string HostText(const pb::HostMemory& host, const Style& style);
std::string LedgerText(const pb::Peak& peak, const Style& style);
std::string LiveText(const pb::Peak& peak, const Style& style);
// Of the steady program only: the first step differs by the optimizer's state (in the JSON).
std::string PhasesText(const pb::Report& report, const Style& style);
std::string TimingText(const pb::Report& report, const Style& style);
std::string CollectivesText(const pb::Report& report, const Style& style);
std::string AssumptionsText(const pb::Report& report, const Style& style);

// "program steady, backward, compute mul, module model.norm (op 12 of segment step)".
std::string PlaceText(const pb::OpRef& op);

// "1 node of 8", "3 nodes: 2 x 8 + 4".
std::string NodesText(const pb::Setup& setup);

}  // namespace foreshard
