// The optimizer's part of a step: its state at the first step, the update, dropping gradients.
#pragma once

#include "planner/lower/plan_builder.h"
#include "planner/lower/sharding_rules.h"

namespace foreshard {

struct OptimizerChoice {
  pb::OptimizerKind kind = pb::ADAMW;
  pb::OptimizerImpl impl = pb::FUSED;
  DType state = DType::kFp32;  // of the moments
  double learning_rate = 1e-3;
  double weight_decay = 0.01;
  double momentum = 0;  // SGD
};

// Where gradients are clipped and parameters are updated.
struct UpdatePlace {
  DType original = DType::kFp32;  // of shards and gradients
  StreamId stream = 0;
  bool on_host = false;  // shards, gradients, state and whatever the update holds
  int ranks = 1;         // in the shard group
  int group = 0;
};

// Adds the segments "optimizer_init" (if the optimizer has state) and "optimizer". State follows
// the unpadded local shapes, so ranks with fewer rows hold less. On the host, whatever is issued
// after it finds the update done.
void AddOptimizer(const OptimizerChoice& choice, const UpdatePlace& place,
                  const ShardingRules& rules, PlanBuilder& builder);

}  // namespace foreshard
