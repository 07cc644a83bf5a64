#include "tools/render/plan_text.h"

#include <fmt/format.h>

#include "proto/base/units_text.h"
#include "proto/plan.pb.h"

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

std::string Choices(const pb::Decisions& d) {
  return fmt::format("PyTorch {}, kernels of {}, {} attention, wrap {}, {} x {} tokens", d.torch(),
                     d.kernel_profile(), d.attention().empty() ? "no" : d.attention(),
                     d.wrap_policy().empty() ? "as listed" : d.wrap_policy(), d.micro_batch(),
                     d.seq());
}

}  // namespace

std::string RenderPlanSummary(const pb::Plan& plan) {
  return fmt::format(
      "plan for {}: {} ranks, {} units, {} parameters, {} buffers, {} kernels\n"
      "  programs: {}\n"
      "  {}\n",
      plan.header().model_name(), plan.mesh().world_size(), plan.units_size(),
      FormatCount(plan.header().parameter_count()), FormatCount(plan.buffers_size()),
      plan.kernels_size(), Programs(plan), Choices(plan.decisions()));
}

}  // namespace foreshard
