#include "planner/decide_optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "planner/pick.h"
#include "proto/oplib/optimizer_state.h"

namespace foreshard {
namespace {

// A number that the optimizer is told, 0 or more as PyTorch wants it.
StatusOr<double> Told(const char* flag, const std::optional<double>& value, double otherwise,
                      bool has_one, const std::string& optimizer) {
  if (!value) return otherwise;
  if (!has_one) {
    return InvalidArgument(
        fmt::format("{}: found {}, expected none for optimizer {}", flag, *value, optimizer));
  }
  if (std::isfinite(*value) && *value >= 0) return *value;
  return InvalidArgument(fmt::format("{}: found {}, expected a number, 0 or more", flag, *value));
}

StatusOr<pb::OptimizerKind> DecideKind(const std::string& name) {
  if (name == "adafactor") {
    return InvalidArgument(
        "optimizer: adafactor does not work with FSDP2: PyTorch refuses its update of sharded "
        "parameters (docs/fsdp2.md); use adamw8bit, adamw or sgd");
  }
  return Pick<pb::OptimizerKind>("optimizer", name,
                                 {{"adamw", pb::ADAMW},
                                  {"sgd", pb::SGD},
                                  {"adamw8bit", pb::ADAMW_8BIT},
                                  {"none", pb::OPTIMIZER_NONE}});
}

// AdamW in 8 bits comes in one form, which goes over the parameters whatever was asked for.
StatusOr<pb::OptimizerImpl> DecideImpl(pb::OptimizerKind kind, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::OptimizerImpl impl,
                   Pick<pb::OptimizerImpl>(
                       "optimizer-impl", name,
                       {{"fused", pb::FUSED}, {"foreach", pb::FOREACH}, {"loop", pb::LOOP}}));
  if (kind == pb::OPTIMIZER_NONE) return pb::OPTIMIZER_IMPL_NONE;
  return kind == pb::ADAMW_8BIT ? pb::LOOP : impl;
}

StatusOr<DType> DecideState(const PlanRequest& r, pb::OptimizerKind kind) {
  if (!r.state_dtype || r.state_dtype == r.original_dtype) return r.original_dtype;
  if (kind == pb::ADAMW_8BIT || kind == pb::OPTIMIZER_NONE) {
    return InvalidArgument(fmt::format("state-dtype: found {}, expected none for optimizer {}",
                                       Name(*r.state_dtype), r.optimizer));
  }
  const DType t = *r.state_dtype;
  if (t == DType::kFp32 || t == DType::kBf16 || t == DType::kFp16) return t;
  return InvalidArgument(
      fmt::format("state-dtype: found {}, expected fp32, bf16 or fp16", Name(t)));
}

}  // namespace

StatusOr<OptimizerChoice> DecideOptimizer(const PlanRequest& r) {
  OptimizerChoice o;
  ASSIGN_OR_RETURN(o.kind, DecideKind(r.optimizer));
  ASSIGN_OR_RETURN(o.impl, DecideImpl(o.kind, r.optimizer_impl));
  ASSIGN_OR_RETURN(o.state, DecideState(r, o.kind));
  const bool any = o.kind != pb::OPTIMIZER_NONE;
  const bool sgd = o.kind == pb::SGD;
  ASSIGN_OR_RETURN(o.learning_rate,
                   Told("learning-rate", r.learning_rate, o.learning_rate, any, r.optimizer));
  ASSIGN_OR_RETURN(o.weight_decay, Told("weight-decay", r.weight_decay, sgd ? 0 : o.weight_decay,
                                        any, r.optimizer));
  ASSIGN_OR_RETURN(o.momentum, Told("momentum", r.momentum, 0, sgd, r.optimizer));
  return o;
}

StatusOr<std::optional<ClipChoice>> DecideClip(const PlanRequest& r) {
  if (!r.clip) return std::optional<ClipChoice>();
  if (!std::isfinite(r.clip->max_norm) || r.clip->max_norm <= 0) {
    return InvalidArgument(
        fmt::format("clip: found {}, expected a norm above 0", r.clip->max_norm));
  }
  return std::optional(ClipChoice{r.clip->max_norm, !r.clip->foreach});
}

// Moments of few elements are kept as they are: a rank with fewer rows may hold more bytes.
Status CheckOptimizer(const ModelGraph& graph, const StepDecisions& d) {
  if (d.optimizer.kind != pb::ADAMW_8BIT) return OkStatus();
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const GraphParameter& p = graph.parameters[i];
    const int dim = d.shard_dims.empty() ? 0 : d.shard_dims[i];
    const int64_t most = LocalNumel(p.shape, dim, d.shard_ranks, 0);
    for (int rank = 1; rank < d.shard_ranks && !p.frozen; ++rank) {
      const int64_t numel = LocalNumel(p.shape, dim, d.shard_ranks, rank);
      if (numel == most) continue;
      if (numel == 0) break;
      const bool quantized = oplib::IsQuantized(pb::ADAMW_8BIT, numel);
      if (quantized == oplib::IsQuantized(pb::ADAMW_8BIT, most)) continue;
      return InvalidArgument(fmt::format(
          "optimizer: adamw8bit would keep the moments of {} in 8 bits on some ranks only (rank 0 "
          "has {} elements of it, rank {} {}), which is not modelled; choose a number of ranks "
          "that "
          "divides {}",
          p.path, most, rank, numel, p.shape[dim]));
    }
  }
  return OkStatus();
}

}  // namespace foreshard
