// Behaviour profiles: what differs between versions of PyTorch's FSDP2. Each row of the table in
// behaviour.cc says only what changed against the row before; docs/fsdp2.md gives the sources.
#pragma once

#include <string>

#include "proto/base/status.h"

namespace foreshard {

struct Behaviour {
  std::string torch;              // "2.14"
  bool newer_than_known = false;  // than the newest profile, which is taken

  // ---- since 2.8
  // An explicit reshard_after_forward of the root is honoured; before, the root always kept its
  // parameters.
  bool root_may_reshard = false;

  // ---- since 2.13
  // A parameter of two units is an error; before, each gathered and reduced its own copy.
  bool refuses_shared_parameters = false;

  // ---- until 2.13
  // A shard group of one rank runs its collectives as others do.
  bool alone_uses_collectives = true;
  // A forward that runs again in backward reshards and counts as one more visit of its unit.
  bool reshards_after_recompute = true;
  // Such a forward of a unit that was resharded meanwhile gathers it.
  bool unshards_in_recompute = false;
  // The end of the backward is about the units that are unsharded; since, about those whose
  // post-backward has not run.
  bool ends_with_unsharded_units = true;
  // The input of a reduce-scatter is dropped when another is about to be filled; since, at the end
  // of every unit's backward.
  bool recycles_only_to_reduce = true;

  // ---- until 2.14
  // The gather output of the unit before is dropped after this unit's copy-out; since, before it.
  bool drops_previous_gather_first = false;
  // The gradient of a unit's last parameter outlives the reduce-scatter of the unit.
  bool last_gradient_survives_reduction = true;
  // Without a reduce dtype gradients are reduced in the compute dtype; since, in the parameters'
  // original dtype.
  bool reduces_in_original_dtype = false;
  // Autograd casts a parameter's gradient to the parameter's dtype.
  bool casts_leaf_gradients = true;
  // Sums over micro-batches without a reduction are kept apart from autograd's gradients and added
  // to after a unit's backward; since, autograd adds to them.
  bool accumulates_apart = true;
  // Compute waits for all reductions once, at the end; before, at the end of each unit there.
  bool waits_once_at_end = false;
};

// The newest profile not above `version` ("2.15", "2.15.0"). kInvalidArgument for versions that are
// not numbers or older than the oldest profile.
StatusOr<Behaviour> BehaviourOf(const std::string& version);

}  // namespace foreshard
