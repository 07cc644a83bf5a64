// Lowers one training step: forward, loss, backward, optimizer, as segments and programs of a plan.
#pragma once

#include <optional>

#include "planner/graph/model_graph.h"
#include "planner/lower/behaviour.h"
#include "planner/lower/clip.h"
#include "planner/lower/forward.h"
#include "planner/lower/optimizer.h"
#include "planner/lower/plan_builder.h"
#include "planner/lower/sharding_rules.h"
#include "planner/profiles/profile.h"
#include "planner/wrap.h"

namespace foreshard {

// Whether units have flat parameters.
inline bool IsFsdp1(pb::Strategy strategy) {
  return strategy >= pb::FULL_SHARD && strategy <= pb::HYBRID_SHARD_ZERO2;
}

// What has been decided, ready to be lowered.
struct StepDecisions {
  Behaviour behaviour;
  ForwardChoices forward;  // its compute dtype is that of gathered parameters
  DType original = DType::kFp32;
  DType reduce = DType::kFp32;
  OptimizerChoice optimizer;
  std::optional<ClipChoice> clip;  // absent = gradients are not clipped
  pb::LossKind loss = pb::CROSS_ENTROPY_FP32;
  int shard_ranks = 1;
  int replicas = 1;
  std::vector<UnitRules> units;  // reshard groups are set as groups are made
  std::vector<int> shard_dims;   // per parameter; empty = dim 0 of all
  pb::Strategy strategy = pb::FULLY_SHARD;
  pb::Fsdp1Options fsdp1;
  bool casts_root_inputs = false;  // of FSDP1
  pb::DdpOptions ddp;
  int micro_batches = 1;
  BackwardRules before_last;  // what holds for all micro-batches but the last
  int reduce_inputs = 1;
  std::optional<double> divide_factor;
  bool force_sum = false;
  bool separate_reduce_group = false;
  bool offloads = false;
  std::string arch;
};

// Whether every rank has all parameters: there are no units but the model.
inline bool IsReplicated(pb::Strategy strategy) {
  return strategy == pb::DDP || strategy == pb::ZERO1;
}

// Fills the plan's tables, segments and programs. REQUIRES: the graph has an output that needs a
// gradient and, for the cross-entropies, a vocabulary dimension.
void LowerStep(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan);

}  // namespace foreshard
