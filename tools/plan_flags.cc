#include "tools/plan_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "planner/model_source.h"
#include "proto/io.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tools/choices.h"

namespace foreshard {
namespace {

constexpr int64_t kMaxWorld = 1'000'000;
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;  // of a micro-batch on one rank

void AddModelFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  app.add_option("--model", flags->model,
                 "Hugging Face config.json, folder with one, native model file, or built-in name")
      ->type_name("MODEL")
      ->required();
  AddCounts(app, "--world", &flags->worlds, kMaxWorld, repeat, "Number of GPUs")
      ->type_name("N")
      ->required();
  AddCounts(app, "--seq", &flags->seqs, kMaxTokens, repeat, "Tokens per sequence")
      ->type_name("N")
      ->required();
  AddCounts(app, "--micro-batch", &flags->micro_batches, kMaxTokens, repeat,
            "Sequences per GPU (1)")
      ->type_name("N");
}

void AddShardingFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  AddTexts(app, "--wrap", &flags->wraps, repeat,
           fmt::format("What is gathered at once (block): {}", fmt::join(WrapPolicies(), ", ")))
      ->type_name("POLICY");
  AddChoices(app, "--reshard-after-forward", &flags->reshards_after_forward, {"true", "false"},
             repeat, "Free gathered parameters of all but the root after forward");
  AddTruth(app, "--root-reshard-after-forward", &flags->root_reshard_after_forward,
           "The same for the root");
  AddChoice(app, "--original-dtype", &flags->original_dtype, {"fp32", "bf16", "fp16"},
            "Of sharded parameters (fp32)");
  AddChoice(app, "--param-dtype", &flags->param_dtype, {"fp32", "bf16", "fp16", "none"},
            "Of gathered parameters and compute (bf16), none = original");
  AddChoice(app, "--reduce-dtype", &flags->reduce_dtype, {"fp32", "bf16", "fp16", "none"},
            "Of gradient reduction (fp32), none = the library's default");
}

void AddTrainingFlags(CLI::App& app, PlanFlags* flags) {
  PlanRequest& r = flags->request;
  AddChoice(app, "--optimizer", &r.optimizer, {"adamw", "sgd", "none"}, "Optimizer (adamw)");
  AddChoice(app, "--optimizer-impl", &r.optimizer_impl, {"fused", "foreach"},
            "Its implementation (fused)");
  AddNumber(app, "--learning-rate", &r.learning_rate, "Learning rate (0.001)");
  AddNumber(app, "--weight-decay", &r.weight_decay, "Weight decay (adamw 0.01, sgd 0)");
  AddNumber(app, "--momentum", &r.momentum, "Momentum of sgd (0); above 0 it has state");
  AddChoice(app, "--loss", &r.loss, {"cross_entropy_fp32", "cross_entropy", "sum_fp32"},
            "Loss (cross_entropy_fp32)");
  AddChoice(app, "--attention", &r.attention, {"auto", "flash", "efficient", "math"},
            "Attention kernel (auto)");
  AddChoice(app, "--kernel-profile", &r.kernel_profile, KernelProfiles(),
            "Whose software runs (torch-cuda)");
  app.add_option("--torch", r.torch, fmt::format("PyTorch version ({})", r.torch))
      ->type_name("X.Y");
}

// "none" = absent. REQUIRES: one of the flag's choices.
std::optional<DType> OptionalDType(const std::string& text) {
  if (text == "none") return std::nullopt;
  return ParseDType(text).value();
}

StatusOr<PlanRequest> RequestFrom(const PlanFlags& flags, const PlanChoice& choice,
                                  const std::string& arch) {
  if (choice.seq > kMaxTokens / choice.micro_batch) {
    return InvalidArgument(
        fmt::format("--seq, --micro-batch: found {} x {} tokens, expected {} at most", choice.seq,
                    choice.micro_batch, kMaxTokens));
  }
  PlanRequest request = flags.request;
  request.wrap = choice.wrap;
  request.world_size = static_cast<int>(choice.world);
  request.seq = choice.seq;
  request.micro_batch = choice.micro_batch;
  if (!choice.reshard_after_forward.empty()) {
    request.reshard_after_forward = choice.reshard_after_forward == "true";
  }
  request.root_reshard_after_forward = flags.root_reshard_after_forward;
  request.original_dtype = *OptionalDType(flags.original_dtype);
  request.param_dtype = OptionalDType(flags.param_dtype);
  request.reduce_dtype = OptionalDType(flags.reduce_dtype);
  request.arch = arch;
  return request;
}

}  // namespace

void AddPlanFlags(CLI::App& app, PlanFlags* flags, Repeat repeat) {
  AddModelFlags(app, flags, repeat);
  AddShardingFlags(app, flags, repeat);
  AddTrainingFlags(app, flags);
}

StatusOr<pb::Plan> PlanFor(const pb::Model& model, const PlanFlags& flags, const PlanChoice& choice,
                           const std::string& arch) {
  ASSIGN_OR_RETURN(const PlanRequest request, RequestFrom(flags, choice, arch));
  StatusOr<pb::Plan> plan = MakePlan(model, request);
  if (!plan.ok()) {
    // A model that makes no sense is a matter of its file; a refused choice is one of the flags.
    const bool model_is_bad = plan.status().code() == StatusCode::kInvalidInput;
    return model_is_bad ? plan.status().At(flags.model) : plan.status();
  }
  RETURN_IF_ERROR(CheckPlan(*plan).At("the plan made for this model"));
  return plan;
}

StatusOr<pb::Plan> PlanFromFlags(const PlanFlags& flags, const std::string& arch) {
  const PlanChoice choice = {.wrap = flags.wraps.front(),
                             .world = flags.worlds.front(),
                             .seq = flags.seqs.front(),
                             .micro_batch = flags.micro_batches.front(),
                             .reshard_after_forward = flags.reshards_after_forward.front()};
  ASSIGN_OR_RETURN(const pb::Model model, LoadModel(flags.model));
  return PlanFor(model, flags, choice, arch);
}

const std::vector<std::string>& KernelProfiles() {
  static const auto& names = *new std::vector<std::string>{"torch-cuda", "torch-cpu", "foreshard"};
  return names;
}

const std::vector<std::string>& WrapPolicies() {
  static const auto& names =
      *new std::vector<std::string>{"block", "every:K", "whole", "class:NAME", "titan"};
  return names;
}

StatusOr<pb::Plan> LoadPlan(const std::string& path) {
  pb::Plan plan;
  RETURN_IF_ERROR(ReadMessage(path, plan));
  RETURN_IF_ERROR(CheckPlan(plan).At(path));
  return plan;
}

}  // namespace foreshard
