#include "tools/request_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "planner/checkpoint.h"
#include "proto/base/units_text.h"
#include "tools/choices.h"

namespace foreshard {
namespace {

using Names = std::vector<std::string>;
// Puts a value into a request; gives what is wrong with it, or nothing.
using Set = std::function<std::string(PlanRequest&, const std::string&)>;

constexpr int64_t kMaxCount = 1'000'000;

// Adds flags to one group of the help.
class Group {
 public:
  Group(CLI::App& app, const char* name, RequestEdits* edits)
      : app_(app), name_(name), edits_(*edits) {}

  CLI::Option* Value(const char* flag, const char* type, const std::string& help, const Set& set) {
    const auto check = [set](const std::string& text) {
      PlanRequest scratch;
      return set(scratch, text);
    };
    return app_.add_option_function<std::string>(flag, Edit(set), help)
        ->type_name(type)
        ->check(CLI::Validator(check, ""))
        ->group(name_);
  }

  // One of `names`.
  void Choice(const char* flag, const Names& names, const std::string& help,
              const std::function<void(PlanRequest&, const std::string&)>& set) {
    Value(flag, "TEXT", ChoiceHelp(help, names),
          [names, set](PlanRequest& r, const std::string& text) {
            std::string error = ChoiceError(text, names);
            if (error.empty()) set(r, text);
            return error;
          });
  }

  CLI::Option* Number(const char* flag, const std::string& help,
                      const std::function<void(PlanRequest&, double)>& set) {
    return Value(flag, "X", help, [set](PlanRequest& r, const std::string& text) {
      const std::optional<double> number = ParseNumber(text);
      if (!number || *number < 0) {
        return fmt::format("found \"{}\", expected a number, 0 or more", text);
      }
      set(r, *number);
      return std::string();
    });
  }

  void Count(const char* flag, int64_t least, const std::string& help,
             const std::function<void(PlanRequest&, int)>& set) {
    Value(flag, "N", help, [least, set](PlanRequest& r, const std::string& text) {
      const StatusOr<int64_t> count = ParseCount(text);
      if (!count.ok() || *count < least || *count > kMaxCount) {
        return fmt::format("found \"{}\", expected an integer from {} to {}", text, least,
                           kMaxCount);
      }
      set(r, static_cast<int>(*count));
      return std::string();
    });
  }

  CLI::Option* Flag(const char* flag, const std::string& help,
                    const std::function<void(PlanRequest&)>& set) {
    return app_
        .add_flag_callback(
            flag, [edits = &edits_, set] { edits->push_back(set); }, help)
        ->group(name_);
  }

  // May repeat; one edit has all values in order.
  void Texts(const char* flag, const char* type, const std::string& help,
             const std::function<std::string(const std::string&)>& check,
             const std::function<void(PlanRequest&, const Names&)>& set) {
    const auto store = [edits = &edits_, set](const Names& values) {
      edits->push_back([set, values](PlanRequest& r) { set(r, values); });
    };
    app_.add_option_function<Names>(flag, store, help + "; may repeat")
        ->allow_extra_args(false)
        ->type_name(type)
        ->check(CLI::Validator(check, ""))
        ->group(name_);
  }

 private:
  std::function<void(const std::string&)> Edit(const Set& set) {
    return [edits = &edits_, set](const std::string& text) {
      edits->push_back([set, text](PlanRequest& r) { set(r, text); });
    };
  }

  CLI::App& app_;
  const char* const name_;
  RequestEdits& edits_;
};

// "none" = absent. REQUIRES: one of a flag's choices.
std::optional<DType> OptionalDType(const std::string& text) {
  if (text == "none") return std::nullopt;
  return ParseDType(text).value();
}

// Adds a choice of dtypes that sets a field; one of its names is "none" where it may be absent.
template <typename Field>
void AddDType(Group& group, const char* flag, const Names& names, const std::string& help,
              Field PlanRequest::*field) {
  group.Choice(flag, names, help, [field](PlanRequest& r, const std::string& text) {
    if constexpr (std::is_same_v<Field, DType>) {
      r.*field = *OptionalDType(text);
    } else {
      r.*field = OptionalDType(text);
    }
  });
}

// "PATTERN=DIM".
std::string PlacementError(const std::string& text) {
  const size_t equals = text.rfind('=');
  const auto dim =
      equals == std::string::npos ? std::nullopt : ParseNumber(text.substr(equals + 1));
  if (equals != 0 && dim && *dim >= 0 && *dim <= 3 && *dim == static_cast<int>(*dim)) return "";
  return fmt::format("found \"{}\", expected PATTERN=DIM with a dimension from 0 to 3", text);
}

void AddShardingFlags(Group group) {
  group.Value("--root-reshard-after-forward", "true|false|N", "The same for the root",
              [](PlanRequest& r, const std::string& text) {
                return SetReshard(r.root_reshard_after_forward, text);
              });
  const Names dtypes = {"fp32", "bf16", "fp16"};
  const Names or_none = {"fp32", "bf16", "fp16", "none"};
  AddDType(group, "--original-dtype", dtypes, "Of sharded parameters (fp32)",
           &PlanRequest::original_dtype);
  AddDType(group, "--param-dtype", or_none,
           "Of gathered parameters and compute (bf16), none = original", &PlanRequest::param_dtype);
  AddDType(group, "--reduce-dtype", or_none,
           "Of gradient reduction (fp32), none = the library's default",
           &PlanRequest::reduce_dtype);
  AddDType(group, "--output-dtype", or_none, "Of what units return (none = as computed)",
           &PlanRequest::output_dtype);
  group.Flag("--keep-forward-inputs", "Do not cast what units are given",
             [](PlanRequest& r) { r.cast_forward_inputs = false; });
  group.Texts(
      "--shard-dim", "PATTERN=DIM",
      "Cut parameters whose path fits along a dimension other than the first", PlacementError,
      [](PlanRequest& r, const Names& rows) {
        std::vector<ShardPlacementRequest> placements;
        for (const std::string& row : rows) {
          const size_t equals = row.rfind('=');
          placements.push_back(
              {row.substr(0, equals), static_cast<int>(*ParseNumber(row.substr(equals + 1))), 0});
        }
        r.shard_placements.insert(r.shard_placements.begin(), placements.begin(), placements.end());
      });
  group.Flag("--cpu-offload", "Keep shards, gradients and optimizer state on the host",
             [](PlanRequest& r) { r.cpu_offload = true; });
}

void AddCommunicationFlags(Group group) {
  group.Count("--forward-prefetch", 0, "Gather this many units ahead in forward (0)",
              [](PlanRequest& r, int ahead) {
                r.forward_prefetch.clear();
                r.forward_prefetch_ahead = ahead;
              });
  group.Count("--backward-prefetch", 0,
              "Gather this many units ahead in backward (0 = the library's one)",
              [](PlanRequest& r, int ahead) {
                r.backward_prefetch.clear();
                r.backward_prefetch_ahead = ahead;
              });
  group.Texts(
      "--no-unshard-in-backward", "MODULE", "A wrapped module that backward does not need",
      [](const std::string&) { return std::string(); },
      [](PlanRequest& r, const Names& modules) { r.sharded_in_backward = modules; });
  group.Count("--reduce-buffers", 1, "Inputs of reduce-scatters that are kept (1)",
              [](PlanRequest& r, int n) { r.reduce_input_buffers = n; });
  group.Number("--divide-factor", "What gradients are divided by (the number of GPUs)",
               [](PlanRequest& r, double factor) { r.gradient_divide_factor = factor; });
  group.Flag("--force-sum", "Reduce by sums and scale apart",
             [](PlanRequest& r) { r.force_sum_reduction = true; });
  group.Flag("--separate-reduce-group", "Give reduce-scatters a communicator of their own",
             [](PlanRequest& r) { r.separate_reduce_group = true; });
}

// FullyShardedDataParallel's arguments.
void AddFsdp1Flags(Group group) {
  group.Flag("--use-orig-params", "Train the parameters, not the flat ones",
             [](PlanRequest& r) { r.fsdp1.use_orig_params = true; });
  group.Choice("--fsdp1-backward-prefetch", {"pre", "post", "none"},
               "Gather the next unit of backward before (pre) or after the gradients of this one",
               [](PlanRequest& r, const std::string& text) { r.fsdp1.backward_prefetch = text; });
  group.Flag("--fsdp1-forward-prefetch", "Gather the next unit of forward before this one runs",
             [](PlanRequest& r) { r.fsdp1.forward_prefetch = true; });
  group.Flag("--no-limit-all-gathers", "Let the host gather ahead without waiting for frees",
             [](PlanRequest& r) { r.fsdp1.limit_all_gathers = false; });
}

std::string SetMib(int64_t& bytes, const std::string& text) {
  constexpr double kMib = 1 << 20;
  constexpr double kMost = 1 << 20;  // 1 TiB
  const std::optional<double> mib = ParseNumber(text);
  if (!mib || *mib < 0 || *mib > kMost) {
    return fmt::format("found \"{}\", expected a number of MiB, 0 to {}", text, kMost);
  }
  bytes = static_cast<int64_t>(*mib * kMib);
  return "";
}

// DistributedDataParallel's arguments.
void AddDdpFlags(Group group) {
  group.Value(
      "--bucket-cap-mb,--bucket-mb", "MIB", "Gradients that are reduced at once (25)",
      [](PlanRequest& r, const std::string& text) { return SetMib(r.ddp.bucket_bytes, text); });
  group.Value("--first-bucket-mb", "MIB", "The same of the first ones (1)",
              [](PlanRequest& r, const std::string& text) {
                return SetMib(r.ddp.first_bucket_bytes, text);
              });
  group.Flag("--gradient-as-bucket-view", "Gradients live in the buckets",
             [](PlanRequest& r) { r.ddp.gradient_as_bucket_view = true; });
}

// "none" is no class at all.
void AddClassSet(Group& group, const char* flag, const std::string& help,
                 std::optional<Names> PlanRequest::*field) {
  group.Value(flag, "A,B", help, [field](PlanRequest& r, const std::string& text) {
    r.*field = text == "none" ? Names() : CLI::detail::split(text, ',');
    return std::string();
  });
}

// size_based_auto_wrap_policy's arguments.
void AddWrapFlags(Group group) {
  AddClassSet(group, "--force-leaf-modules,--force-leaf",
              "With --wrap size:N, classes that are not taken apart (MultiheadAttention)",
              &PlanRequest::force_leaf_modules);
  AddClassSet(group, "--exclude-wrap-modules,--exclude-wrap",
              "With --wrap size:N, classes that are not wrapped (ModuleList,ModuleDict)",
              &PlanRequest::exclude_wrap_modules);
}

void AddAccumulationFlags(Group group) {
  group.Flag("--no-sync", "Reduce gradients in the last micro-batch only",
             [](PlanRequest& r) { r.micro_batches.reduce = false; });
  group.Flag("--keep-after-backward", "Keep parameters gathered between micro-batches",
             [](PlanRequest& r) { r.micro_batches.reshard_after_backward = false; });
  group.Flag("--all-reduce-last", "With replicas: all-reduce in the last micro-batch only",
             [](PlanRequest& r) { r.micro_batches.all_reduce = false; });
  group.Flag("--wait-last", "Wait for reductions at the end of the last backward only",
             [](PlanRequest& r) { r.micro_batches.last_backward = false; });
}

void AddCheckpointFlags(Group group) {
  group.Value("--ac-save-ops", "OPS",
              "Operators whose results are kept: aten.mm.default,..., or selective (every second "
              "matrix product, attention, reductions, as torchtitan)",
              [](PlanRequest& r, const std::string& text) {
                CheckpointRequest& c = r.checkpoint;
                c.save_every_second_matmul = text == "selective";
                c.save_ops =
                    text == "selective" ? SelectiveSaveOps() : CLI::detail::split(text, ',');
                return std::string();
              });
  group.Flag("--ac-outside", "Around the hooks of a unit, as Hugging Face, not within",
             [](PlanRequest& r) { r.checkpoint.outside_unit = true; });
  group.Flag("--ac-reentrant", "By a backward of its own",
             [](PlanRequest& r) { r.checkpoint.reentrant = true; });
  group.Flag("--ac-no-early-stop", "Run all of a module again",
             [](PlanRequest& r) { r.checkpoint.early_stop = false; });
}

void AddTrainingFlags(Group group) {
  group.Choice("--optimizer", {"adamw", "sgd", "adamw8bit", "adafactor", "none"},
               "Optimizer (adamw)",
               [](PlanRequest& r, const std::string& text) { r.optimizer = text; });
  group.Choice("--optimizer-impl", {"fused", "foreach", "loop"}, "Its implementation (fused)",
               [](PlanRequest& r, const std::string& text) { r.optimizer_impl = text; });
  AddDType(group, "--state-dtype", {"fp32", "bf16", "none"},
           "Of the optimizer's moments (none = as the parameters)", &PlanRequest::state_dtype);
  group.Number("--learning-rate", "Learning rate (0.001)",
               [](PlanRequest& r, double x) { r.learning_rate = x; });
  group.Number("--weight-decay", "Weight decay (adamw 0.01, sgd 0)",
               [](PlanRequest& r, double x) { r.weight_decay = x; });
  group.Number("--momentum", "Momentum of sgd (0); above 0 it has state",
               [](PlanRequest& r, double x) { r.momentum = x; });
  CLI::Option* clip =
      group.Number("--clip", "Scale gradients to this norm at most",
                   [](PlanRequest& r, double norm) { r.clip = ClipRequest{.max_norm = norm}; });
  group
      .Flag("--clip-loop", "One tensor after the other",
            [](PlanRequest& r) { r.clip->foreach = false; })
      ->needs(clip);
  group.Choice(
      "--loss", {"cross_entropy_fp32", "cross_entropy", "cross_entropy_in_model", "sum_fp32"},
      "Loss (cross_entropy_fp32)", [](PlanRequest& r, const std::string& text) { r.loss = text; });
}

void AddSoftwareFlags(Group group) {
  group.Choice("--attention", {"auto", "flash", "efficient", "math"}, "Attention kernel (auto)",
               [](PlanRequest& r, const std::string& text) { r.attention = text; });
  group.Choice("--kernel-profile", KernelProfiles(), "Whose software runs (torch-cuda)",
               [](PlanRequest& r, const std::string& text) { r.kernel_profile = text; });
  group.Value("--torch", "X.Y", fmt::format("PyTorch version ({})", PlanRequest().torch),
              [](PlanRequest& r, const std::string& text) {
                r.torch = text;
                return std::string();
              });
}

}  // namespace

void AddRequestFlags(CLI::App& app, RequestEdits* edits) {
  AddShardingFlags({app, "Sharding", edits});
  AddWrapFlags({app, "Sharding", edits});
  AddCommunicationFlags({app, "Communication of fsdp2", edits});
  AddFsdp1Flags({app, "FSDP1: full_shard, shard_grad_op, no_shard, hybrid_*", edits});
  AddDdpFlags({app, "DDP: ddp, zero1", edits});
  AddAccumulationFlags({app, "Gradient accumulation", edits});
  AddCheckpointFlags({app, "Activation checkpointing", edits});
  AddTrainingFlags({app, "Training", edits});
  AddSoftwareFlags({app, "Software", edits});
}

std::string SetReshard(std::optional<Reshard>& reshard, const std::string& text) {
  if (text == "true" || text == "false") {
    reshard = text == "true";
    return "";
  }
  const StatusOr<int64_t> ranks = ParseCount(text);
  if (!ranks.ok() || *ranks < 1 || *ranks > kMaxCount) {
    return fmt::format("found \"{}\", expected true, false or a number of GPUs", text);
  }
  reshard = Reshard::Groups(static_cast<int>(*ranks));
  return "";
}

const std::vector<std::string>& KernelProfiles() {
  static const auto& names = *new std::vector<std::string>{"torch-cuda", "torch-cpu", "foreshard"};
  return names;
}

}  // namespace foreshard
