// From a model and the user's choices to a plan: the planner's front door.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/base/dtype.h"
#include "proto/base/status.h"

namespace foreshard::pb {
class Model;
class Plan;
}  // namespace foreshard::pb

namespace foreshard {

// One call of fully_shard as PyTorch sees it.
struct WrapRequest {
  std::vector<std::string> modules;           // paths; "" = the model itself
  std::optional<bool> reshard_after_forward;  // absent = argument not given
};

// Everything a user may choose. Defaults are those of `foreshard predict` without flags.
struct PlanRequest {
  int world_size = 0;       // ranks, >= 1
  int64_t micro_batch = 1;  // sequences per rank
  int64_t seq = 0;          // tokens per sequence
  std::string torch = "2.15";
  std::string kernel_profile = "torch-cuda";  // torch-cuda, torch-cpu, foreshard
  std::string attention = "auto";             // auto, flash, efficient, math
  // "block" (default), "every:K", "whole", "class:NAME", "titan"; ignored when `wrap_calls` is set.
  std::string wrap = "block";
  std::vector<WrapRequest> wrap_calls;        // exact calls in order, as golden traces list them
  std::optional<bool> reshard_after_forward;  // of every unit but the root; absent = not given
  std::optional<bool> root_reshard_after_forward;    // absent = not given
  DType original_dtype = DType::kFp32;               // of the sharded parameters
  std::optional<DType> param_dtype = DType::kBf16;   // nullopt = as the original
  std::optional<DType> reduce_dtype = DType::kFp32;  // nullopt = the library's default
  std::string optimizer = "adamw";                   // adamw, sgd, none
  std::string optimizer_impl = "fused";              // fused, foreach
  // Absent = PyTorch's default for the optimizer. Recorded in the plan; momentum and weight decay
  // also decide what the optimizer holds.
  std::optional<double> learning_rate;      // 1e-3
  std::optional<double> weight_decay;       // 0.01 for adamw, 0 for sgd
  std::optional<double> momentum;           // 0, for sgd only
  std::string loss = "cross_entropy_fp32";  // sum_fp32, cross_entropy_fp32, cross_entropy
  std::string arch = "sm80";                // sizes library workspaces, see docs/kernel-profiles.md
};

// Lowers the model. Errors are kInvalidArgument for choices that PyTorch or this version refuses
// (the message says what to do instead) and kInvalidInput for a model that makes no sense.
StatusOr<pb::Plan> MakePlan(const pb::Model& model, const PlanRequest& request);

}  // namespace foreshard
