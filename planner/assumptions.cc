#include "planner/assumptions.h"

#include <fmt/format.h>

#include "proto/oplib/workspace.h"

namespace foreshard {
namespace {

std::string Precision(const StepDecisions& d) {
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

std::string Step(const StepDecisions& d) {
  const std::string clip = d.clip
                               ? fmt::format("gradients clipped to a norm of {}", d.clip->max_norm)
                               : "no gradient clipping";
  const std::string rest = ", one micro-batch, nothing recomputed";
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
    default:
      return "loss: cross entropy in the logits' dtype, outside the model";
  }
}

std::string Library(const PlanRequest& r, const StepDecisions& d) {
  std::string text = fmt::format("library: FSDP2 of torch {}", d.behaviour.torch);
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
  if (r.world_size == 1) {
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
