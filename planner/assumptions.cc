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

std::string Step(const StepDecisions& d) {
  const OptimizerChoice& o = d.optimizer;
  if (o.kind == pb::OPTIMIZER_NONE) {
    return "step: no optimizer, one micro-batch, nothing recomputed";
  }
  std::string state = fmt::format("with state in {}", Name(d.original));
  if (o.kind == pb::SGD) {
    state = o.momentum == 0 ? "without momentum"
                            : fmt::format("with momentum {} in {}", o.momentum, Name(d.original));
    if (o.weight_decay != 0) state += fmt::format(" and weight decay {}", o.weight_decay);
  }
  return fmt::format("step: {} ({}) {}, no gradient clipping, one micro-batch, nothing recomputed",
                     o.kind == pb::SGD ? "SGD" : "AdamW", o.impl == pb::FUSED ? "fused" : "foreach",
                     state);
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
