#include "tools/plan_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "planner/decisions.h"
#include "planner/model_source.h"
#include "planner/validate_strategy.h"
#include "proto/io.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "proto/strategy.h"
#include "tools/choices.h"

namespace foreshard {
namespace {

constexpr int64_t kMaxWorld = 1'000'000;
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;  // of a micro-batch on one rank

constexpr const char* kPlanGroup = "What is planned";

void AddModelFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  app.add_option("--model", flags->model,
                 "Hugging Face config.json, folder with one, native model file, or built-in name")
      ->type_name("MODEL")
      ->required()
      ->group(kPlanGroup);
  app.add_option("--decisions", flags->decisions,
                 "Choices from a file (.json, .textproto, .pb), as `decisions` of a plan; flags go "
                 "before it")
      ->type_name("FILE")
      ->group(kPlanGroup);
  const auto add = [&](const char* flag, std::vector<int64_t>* values, int64_t max,
                       const char* help) {
    AddCounts(app, flag, values, max, repeat, help)->type_name("N")->group(kPlanGroup);
  };
  add("--world", &flags->worlds, kMaxWorld, "Number of GPUs");
  add("--replicate", &flags->replicates, kMaxWorld, "Replicas of the shards, as HSDP (1)");
  add("--seq", &flags->seqs, kMaxTokens, "Tokens per sequence");
  add("--micro-batch", &flags->micro_batch_sizes, kMaxTokens, "Sequences per GPU (1)");
  add("--micro-batches", &flags->micro_batches, kMaxTokens, "Micro-batches in a step (1)");
}

void AddStrategyFlag(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  const auto check = [](std::string& text) {
    const std::optional<pb::Strategy> strategy = ParseStrategy(text);
    if (!strategy) return ChoiceError(text, StrategyNames());
    text = StrategyName(*strategy);
    return std::string();
  };
  AddTexts(app, "--strategy", &flags->strategies, repeat,
           ChoiceHelp("Who owns what (fsdp2)", StrategyNames()) +
               "; zero3 is full_shard, zero2 is shard_grad_op")
      ->type_name("NAME")
      ->transform(CLI::Validator(check, ""))
      ->group(kPlanGroup);
}

void AddPolicyFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  AddTexts(app, "--wrap", &flags->wraps, repeat,
           fmt::format("What is gathered at once (block): {}", fmt::join(WrapPolicies(), ", ")))
      ->type_name("POLICY")
      ->group(kPlanGroup);
  const auto check = [](const std::string& text) {
    std::optional<Reshard> reshard;
    return SetReshard(reshard, text);
  };
  AddTexts(app, "--reshard-after-forward", &flags->reshards_after_forward, repeat,
           "Free gathered parameters of all but the root after forward, or share them among N GPUs")
      ->type_name("true|false|N")
      ->check(CLI::Validator(check, ""))
      ->group(kPlanGroup);
  AddTexts(app, "--ac", &flags->acs, repeat,
           "Modules that run again in backward (none): none, block, every:K, class:NAME, "
           "pattern:A,B")
      ->type_name("POLICY")
      ->group(kPlanGroup);
}

void Apply(const PlanChoice& choice, PlanRequest& r) {
  if (!choice.strategy.empty()) r.strategy = choice.strategy;
  if (!choice.wrap.empty()) {
    r.wrap = choice.wrap;
    r.wrap_calls.clear();
  }
  if (choice.world != 0) r.world_size = static_cast<int>(choice.world);
  if (choice.seq != 0) r.seq = choice.seq;
  if (choice.micro_batch != 0) r.micro_batch = choice.micro_batch;
  if (!choice.reshard_after_forward.empty()) {
    SetReshard(r.reshard_after_forward, choice.reshard_after_forward);
  }
  if (choice.replicate != 0) r.replicate_size = static_cast<int>(choice.replicate);
  if (choice.micro_batches != 0) {
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    r.micro_batches.count = static_cast<int>(std::min(choice.micro_batches, kMost));
  }
  if (choice.ac.empty()) return;
  if (choice.ac == "none") r.checkpoint = {};
  r.checkpoint.policy = choice.ac;
  r.checkpoint.modules.clear();
}

Status CheckSizes(const PlanRequest& r) {
  if (r.world_size == 0) return InvalidArgument("--world is required");
  if (r.seq == 0) return InvalidArgument("--seq is required");
  if (r.micro_batch >= 1 && r.seq > kMaxTokens / r.micro_batch) {
    return InvalidArgument(
        fmt::format("--seq, --micro-batch: found {} x {} tokens, expected {} at most", r.seq,
                    r.micro_batch, kMaxTokens));
  }
  return OkStatus();
}

StatusOr<PlanRequest> RequestFrom(const PlanFlags& flags, const pb::Decisions& file,
                                  const PlanChoice& choice, const std::string& arch) {
  PlanRequest request;
  if (!flags.decisions.empty()) {
    StatusOr<PlanRequest> read = RequestOf(file);
    if (!read.ok()) return read.status().At(flags.decisions);
    request = *std::move(read);
  }
  for (const auto& edit : flags.edits) edit(request);
  Apply(choice, request);
  if (ComparesStrategies(flags)) TakeBackForeign(request);
  if (!arch.empty()) request.arch = arch;
  RETURN_IF_ERROR(CheckSizes(request));
  return request;
}

// Calls that a file lists beside a policy are those of the policy.
Status CheckCalls(const pb::Decisions& file, const pb::Decisions& made) {
  if (file.wrap().empty()) return OkStatus();
  bool same = file.wrap_size() == made.wrap_size();
  for (int i = 0; same && i < file.wrap_size(); ++i) {
    same = std::ranges::equal(file.wrap(i).modules(), made.wrap(i).modules());
  }
  if (same) return OkStatus();
  return InvalidArgument(fmt::format(
      "wrap: the calls that are listed are not those of wrap_policy \"{}\"; make it \"explicit\", "
      "or leave the calls out",
      file.wrap_policy()));
}

}  // namespace

void AddPlanFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  AddModelFlags(app, flags, repeat);
  AddStrategyFlag(app, flags, repeat);
  AddPolicyFlags(app, flags, repeat);
  AddRequestFlags(app, &flags->edits);
}

bool ComparesStrategies(const PlanFlags& flags) { return flags.strategies.size() > 1; }

StatusOr<pb::Plan> PlanFor(const pb::Model& model, const PlanFlags& flags, const PlanChoice& choice,
                           const std::string& arch) {
  pb::Decisions file;
  if (!flags.decisions.empty()) RETURN_IF_ERROR(ReadMessage(flags.decisions, file));
  ASSIGN_OR_RETURN(const PlanRequest request, RequestFrom(flags, file, choice, arch));
  StatusOr<pb::Plan> plan = MakePlan(model, request);
  if (!plan.ok()) {
    // A model that makes no sense is a matter of its file; a refused choice is one of the flags.
    const bool model_is_bad = plan.status().code() == StatusCode::kInvalidInput;
    return model_is_bad ? plan.status().At(flags.model) : plan.status();
  }
  if (choice.wrap.empty()) {
    RETURN_IF_ERROR(CheckCalls(file, plan->decisions()).At(flags.decisions));
  }
  RETURN_IF_ERROR(CheckPlan(*plan).At("the plan made for this model"));
  return plan;
}

StatusOr<pb::Plan> PlanFromFlags(const PlanFlags& flags, const std::string& arch) {
  const PlanChoice choice = {.strategy = flags.strategies.front(),
                             .wrap = flags.wraps.front(),
                             .world = flags.worlds.front(),
                             .seq = flags.seqs.front(),
                             .micro_batch = flags.micro_batch_sizes.front(),
                             .reshard_after_forward = flags.reshards_after_forward.front(),
                             .replicate = flags.replicates.front(),
                             .micro_batches = flags.micro_batches.front(),
                             .ac = flags.acs.front()};
  ASSIGN_OR_RETURN(const pb::Model model, LoadModel(flags.model));
  return PlanFor(model, flags, choice, arch);
}

const std::vector<std::string>& WrapPolicies() {
  static const auto& names = *new std::vector<std::string>{
      "block", "every:K", "whole", "class:A,B", "titan", "size:N", "pattern:A,B", "always", "A|B"};
  return names;
}

StatusOr<pb::Plan> LoadPlan(const std::string& path) {
  pb::Plan plan;
  RETURN_IF_ERROR(ReadMessage(path, plan));
  RETURN_IF_ERROR(CheckPlan(plan).At(path));
  return plan;
}

}  // namespace foreshard
