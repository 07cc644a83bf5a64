#include "tools/render/plan_text.h"

#include <fmt/format.h>

#include "proto/base/units_text.h"
#include "proto/plan.pb.h"
#include "proto/strategy.h"
#include "tools/render/names.h"

namespace foreshard {
namespace {

int64_t OpCount(const pb::Plan& plan, const pb::Program& program) {
  int64_t ops = 0;
  for (const pb::SegmentUse& use : program.uses()) {
    ops += int64_t{use.repeat()} * plan.segments(use.segment()).ops_size();
  }
  return ops;
}

std::string Programs(const pb::Plan& plan) {
  std::string text;
  for (const pb::Program& program : plan.programs()) {
    text += fmt::format("{}{} of {} ops", text.empty() ? "" : ", ", program.name(),
                        FormatCount(OpCount(plan, program)));
  }
  return text;
}

// How the model is cut, in the words of the library that does it.
std::string Wrapping(const pb::Decisions& d) {
  std::string strategy = "strategy " + StrategyName(d.strategy());
  if (IsReplicated(d.strategy())) return strategy;
  return fmt::format("{}, wrap {}, {} call{} of {}", strategy,
                     d.wrap_policy().empty() ? "as listed" : d.wrap_policy(), d.wrap_size(),
                     d.wrap_size() == 1 ? "" : "s",
                     IsFsdp1(d.strategy()) ? "FullyShardedDataParallel" : "fully_shard");
}

std::string Choices(const pb::Decisions& d) {
  std::string attention = d.attention().empty() ? "no" : d.attention();
  if (!d.attention_reason().empty()) attention += fmt::format(" ({})", d.attention_reason());
  return fmt::format(
      "  PyTorch {}, kernels of {} ({}), {} attention\n"
      "  {}; {} x {} tokens\n"
      "  {} parameters, {} compute, {} reduction, {} loss, optimizer {}\n",
      d.torch(), d.kernel_profile(), d.arch(), attention, Wrapping(d), d.micro_batch(), d.seq(),
      DTypeName(d.original_dtype()), DTypeName(d.param_dtype()), DTypeName(d.reduce_dtype()),
      LossName(d.loss()), OptimizerName(d.optimizer(), d.optimizer_impl()));
}

}  // namespace

std::string RenderPlanSummary(const pb::Plan& plan) {
  const pb::Header& header = plan.header();
  return fmt::format(
      "plan for {}: {} ranks, {} units, {} parameters, {} buffers, {} kernels\n"
      "  programs: {}\n"
      "{}"
      "  format {} of foreshard {}, model {:016x}\n",
      header.model_name(), plan.mesh().world_size(), plan.units_size(),
      FormatCount(header.parameter_count()), FormatCount(plan.buffers_size()), plan.kernels_size(),
      Programs(plan), Choices(plan.decisions()), header.format_version(), header.tool_version(),
      header.model_hash());
}

}  // namespace foreshard
