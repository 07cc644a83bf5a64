// Lowers one training step: forward, loss, backward, optimizer, as segments and programs of a plan.
#pragma once

#include "planner/graph/model_graph.h"
#include "planner/lower/behaviour.h"
#include "planner/lower/optimizer.h"
#include "planner/lower/plan_builder.h"
#include "planner/profiles/profile.h"
#include "planner/wrap.h"

namespace foreshard {

// What has been decided, ready to be lowered.
struct StepDecisions {
  Behaviour behaviour;
  const KernelProfile* profile = nullptr;
  AttentionChoice attention;
  DType original = DType::kFp32;
  DType compute = DType::kBf16;
  DType reduce = DType::kFp32;
  OptimizerChoice optimizer;
  pb::LossKind loss = pb::CROSS_ENTROPY_FP32;
  int world_size = 1;
  std::string arch;
};

// Fills the plan's tables, segments and programs. REQUIRES: the graph has an output that needs a
// gradient and, for the cross-entropies, a vocabulary dimension.
void LowerStep(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan);

}  // namespace foreshard
