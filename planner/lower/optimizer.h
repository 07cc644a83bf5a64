// The optimizer's part of a step: its state at the first step, the update, dropping gradients.
#pragma once

#include "planner/lower/plan_builder.h"
#include "planner/lower/sharding_rules.h"
#include "planner/lower/zero1.h"

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
  bool partitioned = false;    // over the replicas: each updates some parameters for all
  StreamId broadcast = kHost;  // then the stream on which it sends them
  int replicate_group = 0;
};

// Adds the segment "optimizer", the first time "optimizer_init" before it (if the optimizer has
// state, which `state` then names). State follows the unpadded local shapes, so ranks with fewer
// rows hold less. On the host, whatever is issued after it finds the update done.
void AddOptimizer(const OptimizerChoice& choice, const UpdatePlace& place,
                  const ShardingRules& rules, PlanBuilder& builder, std::vector<BufferId>& state);

// Says where the gradients are that the op reads first.
void AddOffsets(const ShardingRules& rules, pb::Op& op);

}  // namespace foreshard
