// Clipping gradients by their norm, between the backward and the optimizer.
#pragma once

#include "planner/lower/optimizer.h"

namespace foreshard {

struct ClipChoice {
  double max_norm = 1;
  bool loop = false;  // one tensor after the other
};

// Adds the segment "clip": torch.nn.utils.clip_grad_norm_ on sharded gradients.
void AddClip(const ClipChoice& choice, const UpdatePlace& place, const ShardingRules& rules,
             PlanBuilder& builder);

}  // namespace foreshard
