#include "planner/profiles/profile.h"

#include <fmt/format.h>

#include "planner/eager/ops.h"

namespace foreshard {
namespace {

using ops::AttentionKernel;

template <AttentionKernel kernel>
Tensor Fused(Eager& e, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
             double dropout) {
  return ops::FusedAttention(e, kernel, q, k, v, causal, dropout);
}

template <KernelProfile::Dropout drop>
Tensor Math(Eager& e, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
            double dropout) {
  return recipes::MathAttention(e, q, k, v, causal, dropout, drop);
}

// The rows of the table are in the order of the struct's fields.
constexpr KernelProfile kProfiles[] = {
    {"torch-cuda", recipes::PythonRmsNorm, ops::FusedRmsNorm, DType::kFp32, false,
     recipes::PythonRope, recipes::PythonGeluNew, ops::FusedDropout,
     Fused<AttentionKernel::kFlashCuda>, true, Fused<AttentionKernel::kEfficient>,
     Math<ops::FusedDropout>, recipes::CrossEntropy, true},
    {"torch-cpu", recipes::PythonRmsNorm, recipes::CompositeRmsNorm, DType::kFp32, true,
     recipes::PythonRope, recipes::PythonGeluNew, ops::CompositeDropout,
     Fused<AttentionKernel::kFlashCpu>, false, nullptr, Math<ops::CompositeDropout>,
     recipes::CrossEntropy, false},
    {"foreshard", ops::FusedRmsNorm, ops::FusedRmsNorm, DType::kFp32, false, ops::FusedRope,
     ops::GeluTanh, ops::FusedDropout, Fused<AttentionKernel::kFlash>, true, nullptr,
     Math<ops::FusedDropout>, ops::FusedCrossEntropy, false},
};

}  // namespace

std::span<const KernelProfile> AllProfiles() { return kProfiles; }

StatusOr<const KernelProfile*> FindProfile(const std::string& name) {
  std::string known;
  for (const KernelProfile& p : kProfiles) {
    if (p.name == name) return &p;
    known += (known.empty() ? "" : ", ") + std::string(p.name);
  }
  return InvalidArgument(fmt::format("unknown kernel profile \"{}\"; known are {}", name, known));
}

namespace {

// The name that PyTorch's dispatcher settles on. `reason` says which of its rules decided.
std::string PickAttention(const KernelProfile& profile, const AttentionNeeds& needs,
                          std::string* reason) {
  const auto& [dtype, grouped, head_dim, drops] = needs;
  if (drops && !profile.flash_drops) {
    *reason = fmt::format("the fused kernel of {} takes no dropout", profile.name);
    return "math";
  }
  if (profile.name != "torch-cuda") {
    *reason = fmt::format("{} has one fused kernel for every dtype", profile.name);
    return "flash";
  }
  const bool half = dtype == DType::kBf16 || dtype == DType::kFp16;
  if (half && head_dim <= 256) {
    *reason = fmt::format("{} with heads of {} and no mask", Name(dtype), head_dim);
    return "flash";
  }
  const std::string why = half ? fmt::format("heads of {} exceed flash's 256", head_dim)
                               : fmt::format("flash takes no {}", Name(dtype));
  if (grouped) {
    *reason = why + ", and the memory-efficient kernel takes no grouped heads";
    return "math";
  }
  *reason = why;
  return "efficient";
}

}  // namespace

StatusOr<AttentionChoice> ChooseAttention(const KernelProfile& profile,
                                          const std::string& requested,
                                          const AttentionNeeds& needs) {
  AttentionChoice choice;
  choice.name = requested == "auto" ? PickAttention(profile, needs, &choice.reason) : requested;
  if (choice.name == "flash") {
    choice.run = profile.flash;
  } else if (choice.name == "efficient") {
    choice.run = profile.efficient;
  } else if (choice.name == "math") {
    choice.run = profile.math;
  } else {
    return InvalidArgument(fmt::format(
        "unknown attention \"{}\"; expected auto, flash, efficient or math", requested));
  }
  if (choice.run == nullptr) {
    return InvalidArgument(fmt::format("kernel profile {} has no {} attention; use flash or math",
                                       profile.name, choice.name));
  }
  if (choice.name == "flash" && needs.drops && !profile.flash_drops) {
    return InvalidArgument(
        fmt::format("kernel profile {}: flash attention takes no dropout; use math", profile.name));
  }
  return choice;
}

}  // namespace foreshard
