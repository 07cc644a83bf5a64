// The optimizer's part of a step: its state at the first step, the update, dropping gradients.
#pragma once

#include "planner/graph/model_graph.h"
#include "planner/lower/fsdp2.h"
#include "planner/lower/plan_builder.h"

namespace foreshard {

struct OptimizerChoice {
  pb::OptimizerKind kind = pb::ADAMW;
  pb::OptimizerImpl impl = pb::FUSED;
  double learning_rate = 1e-3;
  double weight_decay = 0.01;
  double momentum = 0;  // SGD
};

// Adds the segments "optimizer_init" (if the optimizer has state) and "optimizer". State follows
// the unpadded local shapes, so ranks with fewer rows hold less.
void AddOptimizer(const OptimizerChoice& choice, DType original, const ModelGraph& graph,
                  const Fsdp2& fsdp, StreamId compute, int ranks, PlanBuilder& builder);

}  // namespace foreshard
