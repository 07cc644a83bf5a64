// What an op of a plan costs in time. The engine knows nothing else about hardware.
#pragma once

#include "proto/base/units.h"

namespace foreshard::pb {
class Op;
}

namespace foreshard::sim {

struct OpCost {
  Seconds host{0};    // the host is busy issuing it
  Seconds device{0};  // its stream is busy running it
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // REQUIRES: `op` belongs to the plan that the model was made for. Both times are
  // zero for ops without a stream.
  virtual OpCost Price(const pb::Op& op) const = 0;
};

}  // namespace foreshard::sim
