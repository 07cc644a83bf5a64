#include "planner/assumptions.h"

#include <fmt/format.h>

#include "proto/oplib/workspace.h"
#include "proto/strategy.h"

namespace foreshard {
namespace {

std::string Precision(const StepDecisions& d) {
  if (IsReplicated(d.strategy)) {
    return fmt::format(
        "precision: parameters, computation and gradients in {}; dtypes of gathers and "
        "reductions are not for this strategy, and nothing is cast",
        Name(d.original));
  }
  return fmt::format(
      "precision: parameters sharded in {}, gathered and computed in {}, gradients "
      "reduced in {}",
      Name(d.original), Name(d.forward.compute), Name(d.reduce));
}

std::string OptimizerName(const OptimizerChoice& o) {
  const char* kind = o.kind == pb::SGD ? "SGD" : "AdamW";
  if (o.kind == pb::ADAMW_8BIT) return "AdamW of torchao (compiled, parameter by parameter)";
  const char* impl = o.impl == pb::FUSED ? "fused" : o.impl == pb::FOREACH ? "foreach" : "loop";
  return fmt::format("{} ({})", kind, impl);
}

std::string OptimizerState(const OptimizerChoice& o) {
  if (o.kind == pb::ADAMW) return fmt::format("with state in {}", Name(o.state));
  if (o.kind == pb::ADAMW_8BIT) {
    return fmt::format("with state in 8 bits, of small tensors in {}", Name(o.state));
  }
  std::string state = o.momentum == 0
                          ? "without momentum"
                          : fmt::format("with momentum {} in {}", o.momentum, Name(o.state));
  if (o.weight_decay != 0) state += fmt::format(" and weight decay {}", o.weight_decay);
  return state;
}

std::string MicroBatches(const StepDecisions& d) {
  if (d.micro_batches == 1) return "one micro-batch";
  const BackwardRules& rules = d.before_last;
  std::string text = fmt::format("{} micro-batches, ", d.micro_batches);
  if (!rules.reduces) {
    text += "gradients reduced in the last";
  } else if (!rules.all_reduces) {
    text += "each reduced, the last over the replicas too";
  } else {
    text += "each reduced";
  }
  if (!rules.reshards) text += ", parameters kept between them";
  if (!rules.is_last) text += ", reductions waited for in the last";
  return text + "; losses are not divided by their number";
}

std::string Recomputation(const StepDecisions& d) {
  const CheckpointRule& rule = d.forward.checkpoint;
  std::string text = fmt::format(
      "recomputed in backward: {} module{}, {}, {}", d.forward.checkpointed.size(),
      d.forward.checkpointed.size() == 1 ? "" : "s", rule.reentrant ? "reentrant" : "not reentrant",
      d.forward.checkpoints_outside ? "around the hooks of units" : "within the hooks of units");
  if (!rule.early_stop) text += ", all of each";
  if (rule.kept.empty()) return text;
  return text + fmt::format("; results of {} are kept{}", fmt::join(rule.kept, ", "),
                            rule.every_second_mm ? ", of mm every second one" : "");
}

// What is unlike the library's defaults in how gradients travel.
std::string Reduction(const StepDecisions& d) {
  std::vector<std::string> parts;
  if (d.divide_factor) parts.push_back(fmt::format("divided by {}", *d.divide_factor));
  if (d.force_sum) parts.push_back("sums scaled apart");
  if (d.separate_reduce_group) parts.push_back("a communicator of their own");
  if (d.reduce_inputs > 1) parts.push_back(fmt::format("{} inputs kept", d.reduce_inputs));
  return parts.empty() ? "" : fmt::format("reductions: {}", fmt::join(parts, ", "));
}

std::string Buckets(const StepDecisions& d) {
  return fmt::format(
      "replicas: {} ranks with all parameters each; gradients all-reduced in one bucket in the "
      "first step, then in buckets of {} bytes or more, the first of {}{}",
      d.replicas, d.ddp.bucket_bytes(), d.ddp.first_bucket_bytes(),
      d.ddp.gradient_as_bucket_view() ? ", gradients being parts of them" : "");
}

const char* PrefetchText(const pb::Fsdp1Options& options) {
  switch (options.backward_prefetch()) {
    case pb::Fsdp1Options::BACKWARD_POST:
      return "the next unit of backward gathered after the gradients of the one before";
    case pb::Fsdp1Options::BACKWARD_NONE:
      return "units of backward gathered when they are needed";
    default:
      return "the next unit of backward gathered before the gradients of the one before";
  }
}

void AddFsdp1(const StepDecisions& d, std::vector<std::string>& out) {
  const char* const after = d.strategy == pb::NO_SHARD ? "every rank keeps all of them"
                            : ReshardsAfterForward(d.strategy)
                                ? "gathered again for backward, but for the root's"
                                : "gathered once, kept until backward has used them";
  out.push_back(fmt::format("parameters: flat, one for each unit, {}; {}",
                            d.fsdp1.use_orig_params()
                                ? "of which the optimizer sees the original ones"
                                : "which the optimizer updates as it is",
                            after));
  if (d.strategy == pb::NO_SHARD) return;
  out.push_back(fmt::format("gathers: {}{}; the host {}", PrefetchText(d.fsdp1),
                            d.fsdp1.forward_prefetch() ? ", of forward one unit ahead" : "",
                            d.fsdp1.no_limit_all_gathers()
                                ? "never waits"
                                : "waits while two gathered units are not freed yet"));
}

// Choices that have no line unless they were made.
void AddMade(const PlanRequest& r, const StepDecisions& d, std::vector<std::string>& out) {
  if (IsFsdp1(d.strategy)) AddFsdp1(d, out);
  if (!d.forward.checkpointed.empty()) out.push_back(Recomputation(d));
  if (IsReplicated(d.strategy)) {
    out.push_back(Buckets(d));
  } else if (d.replicas > 1) {
    out.push_back(
        fmt::format("replicas: {} of {} ranks each, all-reduced", d.replicas, d.shard_ranks));
  }
  if (!r.micro_batches.all_reduce && d.replicas == 1) {
    out.push_back(
        "all-reduce in the last micro-batch only: nothing to all-reduce without replicas");
  }
  if (const std::string reduction = Reduction(d); !reduction.empty()) out.push_back(reduction);
  if (!r.forward_prefetch.empty() || !r.backward_prefetch.empty()) {
    out.push_back(fmt::format("prefetch: explicit for {} units in forward, {} in backward",
                              r.forward_prefetch.size(), r.backward_prefetch.size()));
  }
  if (d.offloads) {
    out.push_back(
        "offload: shards, gradients and optimizer state in page-locked host memory, the update by "
        "the host");
  }
  if (d.forward.compute == DType::kFp16 || d.reduce == DType::kFp16) {
    out.push_back("fp16: no loss scaling");
  }
}

std::string Step(const StepDecisions& d) {
  const std::string clip = d.clip
                               ? fmt::format("gradients clipped to a norm of {}", d.clip->max_norm)
                               : "no gradient clipping";
  const std::string rest =
      ", " + MicroBatches(d) + (d.forward.checkpointed.empty() ? ", nothing recomputed" : "");
  if (d.optimizer.kind == pb::OPTIMIZER_NONE) {
    return "step: no optimizer" + (d.clip ? ", " + clip : "") + rest;
  }
  return fmt::format("step: {} {}, {}{}", OptimizerName(d.optimizer), OptimizerState(d.optimizer),
                     clip, rest);
}

std::string Loss(const StepDecisions& d) {
  switch (d.loss) {
    case pb::SUM_FP32:
      return "loss: sum of the output in fp32";
    case pb::CROSS_ENTROPY_FP32:
      return "loss: cross entropy of fp32 logits, outside the model; logits are not held beyond it";
    case pb::CROSS_ENTROPY_IN_MODEL:
      return "loss: cross entropy of fp32 logits in the model's forward, which shifts the labels";
    default:
      return "loss: cross entropy in the logits' dtype, outside the model";
  }
}

const char* LibraryName(pb::Strategy strategy) {
  switch (strategy) {
    case pb::DDP:
      return "DistributedDataParallel";
    case pb::ZERO1:
      return "DistributedDataParallel with ZeroRedundancyOptimizer";
    case pb::FULLY_SHARD:
      return "FSDP2";
    default:
      return "FSDP1";
  }
}

std::string Library(const PlanRequest& r, const StepDecisions& d) {
  std::string text =
      fmt::format("library: {} of torch {}", LibraryName(d.strategy), d.behaviour.torch);
  if (!r.torch.starts_with(d.behaviour.torch)) {
    text += fmt::format(", the newest known profile not above {}", r.torch);
  }
  return text;
}

}  // namespace

std::vector<std::string> Assumptions(const PlanRequest& r, const StepDecisions& d) {
  std::vector<std::string> out = {
      Library(r, d), Precision(d), Step(d), Loss(d),
      fmt::format(
          "kernels: {}, eager; attention {}{}", d.forward.profile->name, d.forward.attention.name,
          d.forward.attention.reason.empty() ? "" : " (auto: " + d.forward.attention.reason + ")")};
  AddMade(r, d, out);
  if (r.world_size == 1 && !IsReplicated(d.strategy)) {
    out.push_back(
        "one rank: nothing is sent; parameters and gradients are copied where others gather "
        "and reduce");
  }
  if (d.forward.profile->library_workspaces) {
    out.push_back(fmt::format(
        "workspace: {} bytes of cuBLAS on {}, the scratch of attention's backward, nothing else",
        oplib::WorkspaceBytes("cublas", d.arch).value(), d.arch));
  }
  return out;
}

}  // namespace foreshard
