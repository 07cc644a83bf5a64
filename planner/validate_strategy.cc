#include "planner/validate_strategy.h"

#include <fmt/format.h>

#include "proto/strategy.h"

namespace foreshard {
namespace {

// An option that was chosen but is none of the strategy's.
struct Foreign {
  bool chosen;
  const char* flag;
  const char* instead;
};

Status RefuseChosen(const PlanRequest& r, const char* library,
                    std::initializer_list<Foreign> options) {
  for (const Foreign& option : options) {
    if (!option.chosen) continue;
    return InvalidArgument(fmt::format("{}: an option of {}, which strategy {} has not; {}",
                                       option.flag, library, r.strategy, option.instead));
  }
  return OkStatus();
}

bool ListsUnits(const PlanRequest& r) {
  if (r.wrap_calls.empty()) return r.wrap == "titan" || r.wrap.starts_with("every:");
  for (const WrapRequest& call : r.wrap_calls) {
    if (call.modules.size() > 1) return true;
  }
  return false;
}

bool ReshardsByCall(const PlanRequest& r) {
  for (const WrapRequest& call : r.wrap_calls) {
    if (call.reshard_after_forward) return true;
  }
  return false;
}

constexpr const char* kLeaveOut = "leave it out";

Status CheckFullyShardOptions(const PlanRequest& r) {
  constexpr const char* kReshard =
      "full_shard frees parameters after forward, shard_grad_op keeps them";
  const MicroBatchRequest& m = r.micro_batches;
  return RefuseChosen(
      r, "fsdp2",
      {{r.reshard_after_forward || ReshardsByCall(r), "reshard-after-forward", kReshard},
       {r.root_reshard_after_forward.has_value(), "root-reshard-after-forward", kReshard},
       {!r.forward_prefetch.empty() || r.forward_prefetch_ahead > 0, "forward-prefetch",
        "FSDP1 has --fsdp1-forward-prefetch"},
       {!r.backward_prefetch.empty() || r.backward_prefetch_ahead > 0, "backward-prefetch",
        "FSDP1 has --fsdp1-backward-prefetch"},
       {!r.sharded_in_backward.empty(), "no-unshard-in-backward", kLeaveOut},
       {!r.shard_placements.empty(), "shard-dim", kLeaveOut},
       {r.reduce_input_buffers != 1, "reduce-buffers", kLeaveOut},
       {r.gradient_divide_factor.has_value(), "divide-factor", kLeaveOut},
       {r.force_sum_reduction, "force-sum", kLeaveOut},
       {r.separate_reduce_group, "separate-reduce-group", kLeaveOut},
       {r.output_dtype.has_value(), "output-dtype", kLeaveOut},
       {m.reshard_after_backward.has_value(), "keep-after-backward",
        "--no-sync is what FSDP1 and DDP have"},
       {!m.all_reduce, "all-reduce-last", "--no-sync is what FSDP1 and DDP have"},
       {!m.last_backward, "wait-last", kLeaveOut}});
}

Status CheckFsdp1Options(const PlanRequest& r) {
  const Fsdp1Request none;
  const char* const use = "use --strategy full_shard or another of FSDP1's";
  return RefuseChosen(
      r, "FSDP1",
      {{r.fsdp1.use_orig_params, "use-orig-params", use},
       {r.fsdp1.backward_prefetch != none.backward_prefetch, "fsdp1-backward-prefetch",
        r.strategy == "fsdp2" ? "fsdp2 has --backward-prefetch" : use},
       {r.fsdp1.forward_prefetch, "fsdp1-forward-prefetch",
        r.strategy == "fsdp2" ? "fsdp2 has --forward-prefetch" : use},
       {!r.fsdp1.limit_all_gathers, "no-limit-all-gathers", use}});
}

Status CheckDdpOptions(const PlanRequest& r) {
  const DdpRequest none;
  constexpr const char* kUse = "use --strategy ddp or zero1";
  return RefuseChosen(
      r, "DDP",
      {{r.ddp.bucket_bytes != none.bucket_bytes, "bucket-cap-mb", kUse},
       {r.ddp.first_bucket_bytes != none.first_bucket_bytes, "first-bucket-mb", kUse},
       {r.ddp.gradient_as_bucket_view, "gradient-as-bucket-view", kUse}});
}

// Who wraps a model in units of which kind.
Status CheckWrap(const PlanRequest& r, pb::Strategy strategy) {
  if (IsReplicated(strategy)) {
    const bool wraps = !r.wrap_calls.empty() || (r.wrap != "block" && r.wrap != "whole");
    if (!wraps) return OkStatus();
    return InvalidArgument(
        fmt::format("wrap: strategy {} takes the model as a whole; leave it out", r.strategy));
  }
  if (!IsFsdp1(strategy) || !ListsUnits(r)) return OkStatus();
  return InvalidArgument(fmt::format(
      "wrap: {} makes units of several modules, which only fsdp2 has; use block, class:A,B, size:N "
      "or pattern:A,B with strategy {}",
      r.wrap_calls.empty() ? r.wrap : "a call", r.strategy));
}

Status CheckReplicas(const PlanRequest& r, pb::Strategy strategy) {
  if (r.replicate_size == 1 || strategy == pb::FULLY_SHARD || IsHybrid(strategy)) {
    return OkStatus();
  }
  if (IsReplicated(strategy) || strategy == pb::NO_SHARD) {
    return InvalidArgument(fmt::format(
        "replicate: found {}, but with strategy {} every rank is a replica; leave it out",
        r.replicate_size, r.strategy));
  }
  return InvalidArgument(fmt::format(
      "replicate: found {}, but strategy {} shards among all ranks; use {}", r.replicate_size,
      r.strategy, strategy == pb::FULL_SHARD ? "hybrid_shard" : "hybrid_shard_zero2"));
}

}  // namespace

Status CheckStrategy(const PlanRequest& r) {
  const std::optional<pb::Strategy> strategy = ParseStrategy(r.strategy);
  if (!strategy) {
    return InvalidArgument(fmt::format("strategy: unknown \"{}\"; expected {}", r.strategy,
                                       fmt::join(StrategyNames(), ", ")));
  }
  if (*strategy != pb::FULLY_SHARD) RETURN_IF_ERROR(CheckFullyShardOptions(r));
  if (!IsFsdp1(*strategy)) RETURN_IF_ERROR(CheckFsdp1Options(r));
  if (!IsReplicated(*strategy)) RETURN_IF_ERROR(CheckDdpOptions(r));
  RETURN_IF_ERROR(CheckWrap(r, *strategy));
  return CheckReplicas(r, *strategy);
}

}  // namespace foreshard
