// The flags that choose a plan, shared by the commands that make one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/base/status.h"
#include "tools/choices.h"
#include "tools/request_flags.h"

namespace CLI {
class App;
}
namespace foreshard::pb {
class Model;
}

namespace foreshard {

// What tables vary: one value each. Absent ("", 0) = not given: what the decisions file says, or
// the default.
struct PlanChoice {
  std::string strategy;
  std::string wrap;
  int64_t world = 0;
  int64_t seq = 0;
  int64_t micro_batch = 0;
  std::string reshard_after_forward;  // "true", "false", "4"
  int64_t replicate = 0;
  int64_t micro_batches = 0;
  std::string ac;
  bool operator==(const PlanChoice&) const = default;
};

// As typed. What may repeat is a list of at least one value.
struct PlanFlags {
  std::string model;
  std::string decisions;  // file, "" = none
  std::vector<std::string> strategies = {""};
  std::vector<std::string> wraps = {""};
  std::vector<int64_t> worlds = {0};
  std::vector<int64_t> seqs = {0};
  std::vector<int64_t> micro_batch_sizes = {0};
  std::vector<std::string> reshards_after_forward = {""};
  std::vector<int64_t> replicates = {0};
  std::vector<int64_t> micro_batches = {0};
  std::vector<std::string> acs = {""};
  RequestEdits edits;
};

void AddPlanFlags(CLI::App& app, PlanFlags* flags, Repeat repeat);

// Whether rows of several strategies are asked for. Each then takes of the options what its library
// has; a plan of one strategy refuses the others.
bool ComparesStrategies(const PlanFlags& flags);

// Lowers the model for GPUs of `arch` ("" = what the decisions say); the plan has passed CheckPlan.
StatusOr<pb::Plan> PlanFor(const pb::Model& model, const PlanFlags& flags, const PlanChoice& choice,
                           const std::string& arch);

// The same for the first value of each list; loads the model as well.
StatusOr<pb::Plan> PlanFromFlags(const PlanFlags& flags, const std::string& arch);

// Policies that --wrap accepts, for `foreshard list`.
const std::vector<std::string>& WrapPolicies();  // with placeholders: "every:K"

// Reads a plan and passes it through CheckPlan.
StatusOr<pb::Plan> LoadPlan(const std::string& path);

}  // namespace foreshard
