// The flags that choose a plan, shared by the commands that make one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/base/status.h"

namespace CLI {
class App;
}

namespace foreshard {

// As typed; defaults are those of PlanRequest.
struct PlanFlags {
  std::string model;
  int64_t world = 0;
  int64_t seq = 0;
  int64_t micro_batch = 1;
  std::optional<bool> reshard_after_forward;
  std::optional<bool> root_reshard_after_forward;
  std::string original_dtype = "fp32";
  std::string param_dtype = "bf16";
  std::string reduce_dtype = "fp32";
  PlanRequest request;  // what the flags set directly
};

void AddPlanFlags(CLI::App& app, PlanFlags* flags);

// Loads the model and lowers it for GPUs of `arch`; the plan has passed CheckPlan.
StatusOr<pb::Plan> PlanFromFlags(const PlanFlags& flags, const std::string& arch);

// Names that flags accept, for `foreshard list`.
const std::vector<std::string>& KernelProfiles();
const std::vector<std::string>& WrapPolicies();  // with placeholders: "every:K"

// Reads a plan and passes it through CheckPlan.
StatusOr<pb::Plan> LoadPlan(const std::string& path);

}  // namespace foreshard
