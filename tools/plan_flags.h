// The flags that choose a plan, shared by the commands that make one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/base/status.h"
#include "tools/choices.h"

namespace CLI {
class App;
}
namespace foreshard::pb {
class Model;
}

namespace foreshard {

// What tables vary: one value each.
struct PlanChoice {
  std::string wrap;
  int64_t world = 0;
  int64_t seq = 0;
  int64_t micro_batch = 0;
  std::string reshard_after_forward;  // "", "true", "false"
};

// As typed; defaults are those of PlanRequest. What may repeat is a list of at least one value.
struct PlanFlags {
  std::string model;
  std::vector<std::string> wraps = {PlanRequest().wrap};
  std::vector<int64_t> worlds;
  std::vector<int64_t> seqs;
  std::vector<int64_t> micro_batches = {PlanRequest().micro_batch};
  std::vector<std::string> reshards_after_forward = {""};
  std::optional<bool> root_reshard_after_forward;
  std::string original_dtype = "fp32";
  std::string param_dtype = "bf16";
  std::string reduce_dtype = "fp32";
  PlanRequest request;  // what the flags set directly
};

void AddPlanFlags(CLI::App& app, PlanFlags* flags, Repeat repeat);

// Lowers the model for GPUs of `arch`; the plan has passed CheckPlan.
StatusOr<pb::Plan> PlanFor(const pb::Model& model, const PlanFlags& flags, const PlanChoice& choice,
                           const std::string& arch);

// The same for the first value of each list; loads the model as well.
StatusOr<pb::Plan> PlanFromFlags(const PlanFlags& flags, const std::string& arch);

// Names that flags accept, for `foreshard list`.
const std::vector<std::string>& KernelProfiles();
const std::vector<std::string>& WrapPolicies();  // with placeholders: "every:K"

// Reads a plan and passes it through CheckPlan.
StatusOr<pb::Plan> LoadPlan(const std::string& path);

}  // namespace foreshard
