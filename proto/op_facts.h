// What several readers of a plan ask of its ops.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard {

// The group of a collective; -1 of any other op.
int CollectiveGroup(const pb::Op& op);

// By event, how many of its last records waits may ask for. REQUIRES: waits name events of the
// plan.
std::vector<int32_t> EventDepths(const pb::Plan& plan);

}  // namespace foreshard
