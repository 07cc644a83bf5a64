// The gate for hardware descriptions: after it, no cost model divides by nothing.
#pragma once

#include "proto/base/status.h"

namespace foreshard::pb {
class Cluster;
}

namespace foreshard {

// OK, or kInvalidInput naming the field, what it holds and what it must be.
Status CheckCluster(const pb::Cluster& cluster);

}  // namespace foreshard
