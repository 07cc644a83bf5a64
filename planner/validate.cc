#include "planner/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "planner/validate_strategy.h"

namespace foreshard {
namespace {

constexpr int64_t kMaxWorld = 1 << 20;
constexpr int64_t kMaxTokens = int64_t{1} << 32;  // of one micro-batch
constexpr int kMaxMicroBatches = 1 << 12;         // their ops are listed one by one

Status CheckSizes(const PlanRequest& r) {
  if (r.world_size < 1 || r.world_size > kMaxWorld) {
    return InvalidArgument(
        fmt::format("world: {} ranks, expected 1 to {}", r.world_size, kMaxWorld));
  }
  if (r.micro_batch < 1) {
    return InvalidArgument(
        fmt::format("micro-batch: {} sequences, expected at least 1", r.micro_batch));
  }
  if (r.seq < 1) {
    return InvalidArgument(fmt::format("seq: {} tokens, expected at least 1", r.seq));
  }
  if (r.micro_batch > kMaxTokens / r.seq) {
    return InvalidArgument(fmt::format("micro-batch x seq: {} x {} tokens are more than {}",
                                       r.micro_batch, r.seq, kMaxTokens));
  }
  return OkStatus();
}

Status CheckRanks(const PlanRequest& r) {
  if (r.replicate_size >= 1 && r.world_size % r.replicate_size == 0) return OkStatus();
  return InvalidArgument(
      fmt::format("replicate: {} replicas, expected a number that divides the {} ranks",
                  r.replicate_size, r.world_size));
}

Status CheckMicroBatches(const PlanRequest& r) {
  const MicroBatchRequest& m = r.micro_batches;
  if (m.count < 1 || m.count > kMaxMicroBatches) {
    return InvalidArgument(
        fmt::format("micro-batches: found {}, expected 1 to {}", m.count, kMaxMicroBatches));
  }
  return OkStatus();
}

Status CheckReductions(const PlanRequest& r) {
  if (r.reduce_input_buffers < 1) {
    return InvalidArgument(
        fmt::format("reduce-buffers: found {}, expected at least 1", r.reduce_input_buffers));
  }
  const double factor = r.gradient_divide_factor.value_or(1);
  if (!std::isfinite(factor) || factor <= 0) {
    return InvalidArgument(
        fmt::format("divide-factor: found {}, expected a number above 0", factor));
  }
  const double norm = r.clip ? r.clip->max_norm : 1;
  if (!std::isfinite(norm) || norm <= 0) {
    return InvalidArgument(fmt::format("clip: found norm {}, expected a number above 0", norm));
  }
  return OkStatus();
}

Status CheckPrefetchLists(const char* flag, const std::vector<PrefetchRequest>& requests) {
  std::set<std::string> modules;
  for (const PrefetchRequest& r : requests) {
    if (!modules.insert(r.module).second) {
      return InvalidArgument(
          fmt::format("{}: module \"{}\" has two lists, expected one", flag, r.module));
    }
  }
  return OkStatus();
}

Status CheckPrefetch(const PlanRequest& r) {
  RETURN_IF_ERROR(CheckPrefetchLists("forward-prefetch", r.forward_prefetch));
  RETURN_IF_ERROR(CheckPrefetchLists("backward-prefetch", r.backward_prefetch));
  if (r.forward_prefetch_ahead < 0 || r.backward_prefetch_ahead < 0) {
    return InvalidArgument(
        fmt::format("forward-prefetch, backward-prefetch: found {} and {} units "
                    "ahead, expected 0 or more",
                    r.forward_prefetch_ahead, r.backward_prefetch_ahead));
  }
  return OkStatus();
}

Status CheckPlacements(const PlanRequest& r) {
  for (const ShardPlacementRequest& row : r.shard_placements) {
    if (row.dim >= 0 && row.rank >= 0 && !row.parameters.empty()) continue;
    return InvalidArgument(
        fmt::format("shard-dim: found \"{}\" along {}, expected a pattern and a dimension, 0 or "
                    "more",
                    row.parameters, row.dim));
  }
  return OkStatus();
}

Status CheckDTypes(const PlanRequest& r) {
  const DType param = r.param_dtype.value_or(r.original_dtype);
  for (const DType t :
       {r.original_dtype, param, r.reduce_dtype.value_or(param), r.output_dtype.value_or(param)}) {
    if (t == DType::kFp32 || t == DType::kBf16 || t == DType::kFp16) continue;
    return InvalidArgument(fmt::format(
        "dtype: {} is none of parameters and gradients; use fp32, bf16 or fp16", Name(t)));
  }
  return OkStatus();
}

}  // namespace

Status CheckRequest(const PlanRequest& request) {
  for (const auto& check : {CheckSizes, CheckRanks, CheckMicroBatches, CheckReductions,
                            CheckPrefetch, CheckPlacements, CheckDTypes, CheckStrategy}) {
    RETURN_IF_ERROR(check(request));
  }
  return OkStatus();
}

}  // namespace foreshard
