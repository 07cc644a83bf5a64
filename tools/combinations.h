// The flags of `foreshard predict` that may repeat: every combination is a plan and a report.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "proto/base/status.h"
#include "tools/plan_flags.h"

namespace foreshard {

struct Combination {
  PlanChoice choice;
  std::string cluster;  // as typed
  bool operator==(const Combination&) const = default;
};

// Values given twice count once, as do rows of several strategies that differ only in what theirs
// does not have; the first flag of the list in `foreshard predict --help` varies
// slowest. Errors: kInvalidArgument for too many.
StatusOr<std::vector<Combination>> Combinations(const PlanFlags& flags,
                                                const std::vector<std::string>& clusters);

// "--wrap block --world 8": what tells the combination from the others of `all`; empty when it is
// the only one.
std::string NameOf(const Combination& combination, const std::vector<Combination>& all);

}  // namespace foreshard
