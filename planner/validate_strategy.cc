#include "planner/validate_strategy.h"

#include <fmt/format.h>

#include <vector>

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

// An option of fully_shard, by the field of the request that it sets.
struct FullyShardOption {
  const char* flag;
  const char* instead;
  bool (*chosen)(const PlanRequest& request);
  void (*take_back)(PlanRequest& request);
};

// `Field` is a lambda without captures that returns the field of a request.
template <typename Field>
FullyShardOption Option(const char* flag, const char* instead, Field) {
  return {flag, instead,
          [](const PlanRequest& request) {
            const PlanRequest none;
            return !(Field{}(request) == Field{}(none));
          },
          [](PlanRequest& request) {
            const PlanRequest none;
            Field{}(request) = Field{}(none);
          }};
}

constexpr const char* kReshard =
    "full_shard frees parameters after forward, shard_grad_op keeps them";

// In the order in which they are refused.
const std::vector<FullyShardOption>& FullyShardOptions() {
  constexpr const char* kForward = "FSDP1 has --fsdp1-forward-prefetch";
  constexpr const char* kBackward = "FSDP1 has --fsdp1-backward-prefetch";
  constexpr const char* kNoSync = "--no-sync is what FSDP1 and DDP have";
  static const auto& options = *new std::vector<FullyShardOption>{
      Option(
          "reshard-after-forward", kReshard,
          [](auto& r) -> auto& { return r.reshard_after_forward; }),
      Option(
          "root-reshard-after-forward", kReshard,
          [](auto& r) -> auto& { return r.root_reshard_after_forward; }),
      Option(
          "forward-prefetch", kForward, [](auto& r) -> auto& { return r.forward_prefetch; }),
      Option(
          "forward-prefetch", kForward, [](auto& r) -> auto& { return r.forward_prefetch_ahead; }),
      Option(
          "backward-prefetch", kBackward, [](auto& r) -> auto& { return r.backward_prefetch; }),
      Option(
          "backward-prefetch", kBackward,
          [](auto& r) -> auto& { return r.backward_prefetch_ahead; }),
      Option(
          "no-unshard-in-backward", kLeaveOut,
          [](auto& r) -> auto& { return r.sharded_in_backward; }),
      Option(
          "shard-dim", kLeaveOut, [](auto& r) -> auto& { return r.shard_placements; }),
      Option(
          "reduce-buffers", kLeaveOut, [](auto& r) -> auto& { return r.reduce_input_buffers; }),
      Option(
          "divide-factor", kLeaveOut, [](auto& r) -> auto& { return r.gradient_divide_factor; }),
      Option(
          "force-sum", kLeaveOut, [](auto& r) -> auto& { return r.force_sum_reduction; }),
      Option(
          "separate-reduce-group", kLeaveOut,
          [](auto& r) -> auto& { return r.separate_reduce_group; }),
      Option(
          "output-dtype", kLeaveOut, [](auto& r) -> auto& { return r.output_dtype; }),
      Option(
          "keep-after-backward", kNoSync,
          [](auto& r) -> auto& { return r.micro_batches.reshard_after_backward; }),
      Option(
          "all-reduce-last", kNoSync, [](auto& r) -> auto& { return r.micro_batches.all_reduce; }),
      Option(
          "wait-last", kLeaveOut, [](auto& r) -> auto& { return r.micro_batches.last_backward; }),
  };
  return options;
}

Status CheckFullyShardOptions(const PlanRequest& r) {
  constexpr const char* kLibrary = "fsdp2";
  RETURN_IF_ERROR(
      RefuseChosen(r, kLibrary, {{ReshardsByCall(r), "reshard-after-forward", kReshard}}));
  for (const FullyShardOption& option : FullyShardOptions()) {
    RETURN_IF_ERROR(RefuseChosen(r, kLibrary, {{option.chosen(r), option.flag, option.instead}}));
  }
  return OkStatus();
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
  if (r.replicate_size == 1 || TakesReplicas(strategy)) return OkStatus();
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

void TakeBackForeign(PlanRequest& r) {
  const pb::Strategy strategy = ParseStrategy(r.strategy).value();
  const PlanRequest none;
  if (strategy != pb::FULLY_SHARD) {
    for (const FullyShardOption& option : FullyShardOptions()) option.take_back(r);
  }
  if (!IsFsdp1(strategy)) r.fsdp1 = {};
  if (!IsReplicated(strategy)) r.ddp = {};
  if (!TakesReplicas(strategy)) r.replicate_size = none.replicate_size;
  if (!IsReplicated(strategy)) return;
  r.wrap = none.wrap;
  r.wrap_calls.clear();
  r.force_leaf_modules = none.force_leaf_modules;
  r.exclude_wrap_modules = none.exclude_wrap_modules;
}

}  // namespace foreshard
