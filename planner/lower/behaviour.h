// Behaviour profiles: what differs between versions of PyTorch's FSDP2. Each row of the table in
// behaviour.cc says only what changed against the row before; docs/fsdp2.md gives the sources.
#pragma once

#include <string>

#include "proto/base/status.h"

namespace foreshard {

struct Behaviour {
  std::string torch;  // "2.14"
  // The gather output of the unit before is dropped before this unit's copy-out, not after it.
  bool drops_previous_gather_first = false;
  // The gradient of a unit's last parameter outlives the reduce-scatter of the unit.
  bool last_gradient_survives_reduction = true;
  // Without a reduce dtype, gradients are reduced in the parameters' original dtype, not in the
  // compute dtype.
  bool reduces_in_original_dtype = false;
  // Autograd casts a parameter's gradient to the parameter's dtype.
  bool casts_leaf_gradients = true;
};

// The newest profile not above `version` ("2.15", "2.15.0"). kInvalidArgument for versions that are
// not numbers or older than the oldest profile.
StatusOr<Behaviour> BehaviourOf(const std::string& version);

}  // namespace foreshard
