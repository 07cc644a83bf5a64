// From a model and the user's choices to a plan: the planner's front door.
#pragma once

#include <concepts>
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

// What becomes of a unit's gathered parameters after forward, by how many ranks keep them between
// them: all of the shard group (true), one (false: they stay), or a number that divides the group.
struct Reshard {
  static constexpr int kAll = 0;
  int ranks = kAll;
  template <std::same_as<bool> Bool>  // not what only converts to it, as a number of ranks
  Reshard(Bool shards) : ranks(shards ? kAll : 1) {}  // NOLINT: PyTorch's argument is either
  static Reshard Groups(int ranks) {
    Reshard reshard(true);
    reshard.ranks = ranks;
    return reshard;
  }
  bool operator==(const Reshard&) const = default;
};

// "true", "false", "4"; "" when it was not given.
std::string Describe(const std::optional<Reshard>& reshard);

// One call of fully_shard as PyTorch sees it.
struct WrapRequest {
  std::vector<std::string> modules;              // paths; "" = the model itself
  std::optional<Reshard> reshard_after_forward;  // absent = argument not given
};

// set_modules_to_forward_prefetch and its counterpart, per wrapped module ("" = the model itself).
struct PrefetchRequest {
  std::string module;
  std::vector<std::string> targets;  // in the order in which they are gathered
  bool operator==(const PrefetchRequest&) const = default;
};

// Gradient accumulation. The fields after the first are about all micro-batches but the last.
struct MicroBatchRequest {
  int count = 1;
  bool reduce = true;                          // set_requires_gradient_sync
  std::optional<bool> reshard_after_backward;  // set_reshard_after_backward; absent = not called
  bool all_reduce = true;                      // set_requires_all_reduce
  bool last_backward = true;                   // set_is_last_backward
};

// Which modules run their forward again in backward, and how.
struct CheckpointRequest {
  // "none", "block" (every block), "every:K" (blocks 0, K, 2K, ...), "class:NAME", "pattern:A,B"
  // (paths, "layers.*.mlp"); ignored when `modules` is set.
  std::string policy = "none";
  std::vector<std::string> modules = {};  // exact paths
  bool reentrant = false;
  bool outside_unit = false;  // checkpoint(fully_shard(m)), as Hugging Face does, not the reverse
  // ATen operators whose results are kept: "aten.mm.default".
  std::vector<std::string> save_ops = {};
  bool save_every_second_matmul = false;
  bool early_stop = true;
};

struct ClipRequest {
  double max_norm = 1;
  bool foreach = true;
};

// Parameters whose path matches `parameters` ("*" = any characters) are sharded along `dim`.
struct ShardPlacementRequest {
  std::string parameters;
  int dim = 0;
  int rank = 0;  // only parameters of this many dimensions; 0 = of more than `dim`
  bool operator==(const ShardPlacementRequest&) const = default;
};

// torch.distributed.fsdp.FullyShardedDataParallel's arguments of the same names.
struct Fsdp1Request {
  bool use_orig_params = false;
  std::string backward_prefetch = "pre";  // pre, post, none
  bool forward_prefetch = false;
  bool limit_all_gathers = true;
  bool operator==(const Fsdp1Request&) const = default;
};

// DistributedDataParallel's arguments; buckets are filled up to these sizes.
struct DdpRequest {
  int64_t bucket_bytes = int64_t{25} << 20;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  bool gradient_as_bucket_view = false;
  bool operator==(const DdpRequest&) const = default;
};

// Everything a user may choose. Defaults are those of `foreshard predict` without flags.
struct PlanRequest {
  int world_size = 0;       // ranks, >= 1
  int replicate_size = 1;   // replicas of the shards (HSDP); divides world_size
  int64_t micro_batch = 1;  // sequences per rank
  int64_t seq = 0;          // tokens per sequence
  // "fsdp2" (fully_shard); of FSDP1 "full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
  // "hybrid_shard_zero2"; "ddp", and "zero1" with ZeroRedundancyOptimizer. What follows is about
  // fsdp2 where it says how, and applies to the others as far as PyTorch has it there.
  std::string strategy = "fsdp2";
  Fsdp1Request fsdp1;
  DdpRequest ddp;
  std::string torch = "2.15";
  std::string kernel_profile = "torch-cuda";  // torch-cuda, torch-cpu, foreshard
  std::string attention = "auto";             // auto, flash, efficient, math
  // "block" (default), "every:K", "whole", "titan", or policies of FSDP1, which also say what
  // fully_shard is called on, bottom-up: "class:A,B", "size:N", "pattern:A,B" (paths), "always",
  // "A|B" (either). Ignored when `wrap_calls` is set.
  std::string wrap = "block";
  // Of "size:N", as size_based_auto_wrap_policy's arguments: classes; absent = PyTorch's.
  std::optional<std::vector<std::string>> force_leaf_modules;
  std::optional<std::vector<std::string>> exclude_wrap_modules;
  std::vector<WrapRequest> wrap_calls;           // exact calls in order, as golden traces list them
  std::optional<Reshard> reshard_after_forward;  // of every unit but the root; absent = not given
  std::optional<Reshard> root_reshard_after_forward;  // absent = not given
  std::vector<PrefetchRequest> forward_prefetch;
  std::vector<PrefetchRequest> backward_prefetch;
  // Above 0: lists for every unit of the next so many, which take the place of those above.
  int forward_prefetch_ahead = 0;
  int backward_prefetch_ahead = 0;
  std::vector<std::string> sharded_in_backward;  // set_unshard_in_backward(False), wrapped modules
  std::vector<ShardPlacementRequest> shard_placements;  // the first that matches decides
  int reduce_input_buffers = 1;                         // set_reduce_scatter_max_input_buffers
  std::optional<double> gradient_divide_factor;         // set_gradient_divide_factor
  bool force_sum_reduction = false;                     // set_force_sum_reduction_for_comms
  bool separate_reduce_group = false;                   // set_separate_reduce_scatter_group
  bool cpu_offload = false;                             // CPUOffloadPolicy
  MicroBatchRequest micro_batches;
  CheckpointRequest checkpoint;
  std::optional<ClipRequest> clip;                   // absent = no clipping
  DType original_dtype = DType::kFp32;               // of the sharded parameters
  std::optional<DType> param_dtype = DType::kBf16;   // nullopt = as the original
  std::optional<DType> reduce_dtype = DType::kFp32;  // nullopt = the library's default
  std::optional<DType> output_dtype;                 // of units' outputs; nullopt = as computed
  bool cast_forward_inputs = true;
  std::string optimizer = "adamw";       // adamw, sgd, adamw8bit, none
  std::string optimizer_impl = "fused";  // fused, foreach, loop
  std::optional<DType> state_dtype;      // of the optimizer's moments; nullopt = as the parameters
  // Absent = PyTorch's default for the optimizer. Recorded in the plan; momentum and weight decay
  // also decide what the optimizer holds.
  std::optional<double> learning_rate;  // 1e-3
  std::optional<double> weight_decay;   // 0 for sgd, 0.01 for the others
  std::optional<double> momentum;       // 0, for sgd only
  // sum_fp32, cross_entropy_fp32, cross_entropy, cross_entropy_in_model
  std::string loss = "cross_entropy_fp32";
  std::string arch = "sm80";  // sizes library workspaces, see docs/kernel-profiles.md
};

// Lowers the model. Errors are kInvalidArgument for choices that PyTorch or this version refuses
// (the message says what to do instead) and kInvalidInput for a model that makes no sense.
StatusOr<pb::Plan> MakePlan(const pb::Model& model, const PlanRequest& request);

}  // namespace foreshard
