#include <cctype>
#include <string>
#include <vector>

#include "tests/golden/golden_request.h"

namespace foreshard::golden {
namespace {

using nlohmann::json;

bool Given(const json& options, const char* name) {
  return options.contains(name) && !options[name].is_null();
}

std::optional<DType> OptionalDType(const json& options, const char* name) {
  if (!Given(options, name)) return std::nullopt;
  return ParseDType(options[name].get<std::string>()).value();
}

// "2.15.0+cu132" -> "2.15"
std::string MajorMinor(const std::string& version) {
  const size_t minor = version.find('.');
  return version.substr(0, version.find('.', minor + 1));
}

void SetOptimizer(const json& optimizer, PlanRequest& request) {
  if (optimizer.is_null()) {
    request.optimizer = "none";
    return;
  }
  request.optimizer = optimizer.at("kind");
  request.optimizer_impl = optimizer.value("fused", false)     ? "fused"
                           : optimizer.value("foreach", false) ? "foreach"
                                                               : "loop";
  if (optimizer.contains("momentum")) request.momentum = optimizer["momentum"];
  if (optimizer.contains("weight_decay")) request.weight_decay = optimizer["weight_decay"];
}

void SetMicroBatches(const json& options, PlanRequest& request) {
  MicroBatchRequest& micro_batches = request.micro_batches;
  micro_batches.count = options.value("n", 1);
  micro_batches.reduce = options.at("sync") != "last";
  micro_batches.all_reduce = options.value("all_reduce", "each") != "last";
  if (Given(options, "reshard_after_backward")) {
    micro_batches.reshard_after_backward = options["reshard_after_backward"].get<bool>();
  }
}

void SetPrecision(const json& options, PlanRequest& request) {
  request.original_dtype = ParseDType(options.at("param_dtype").get<std::string>()).value();
  const json& policy = options.at("mixed_precision");
  request.param_dtype = OptionalDType(policy, "param");
  request.reduce_dtype = OptionalDType(policy, "reduce");
  request.output_dtype = OptionalDType(policy, "output");
  if (Given(policy, "cast_forward_inputs")) {
    request.cast_forward_inputs = policy["cast_forward_inputs"];
  }
}

std::vector<PrefetchRequest> Prefetches(const json& by_module) {
  std::vector<PrefetchRequest> requests;
  for (const auto& [module, targets] : by_module.items()) requests.push_back({module, targets});
  return requests;
}

void SetCheckpoint(const json& options, CheckpointRequest& checkpoint) {
  checkpoint.modules = options.at("modules").get<std::vector<std::string>>();
  checkpoint.reentrant = options.at("impl") == "reentrant";
  checkpoint.outside_unit = options.at("order") == "checkpoint_outside_unit";
  if (Given(options, "save_ops")) {
    checkpoint.save_ops = options["save_ops"].get<std::vector<std::string>>();
  }
  if (Given(options, "early_stop")) checkpoint.early_stop = options["early_stop"];
}

// DDP's recordings name the strategy and the sizes of buckets.
void SetDdp(const json& options, PlanRequest& request) {
  request.strategy = options.at("strategy");
  request.replicate_size = 1;  // every rank is a replica, which nobody has to say
  request.ddp.bucket_bytes = options.at("bucket_bytes");
  request.ddp.first_bucket_bytes = options.at("first_bucket_bytes");
  request.ddp.gradient_as_bucket_view = options.at("gradient_as_bucket_view");
}

// "_HYBRID_SHARD_ZERO2" -> "hybrid_shard_zero2"
std::string StrategyOf(std::string name) {
  if (name.starts_with('_')) name.erase(0, 1);
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

// "BACKWARD_PRE" -> "pre"
std::string BackwardPrefetchOf(const json& options) {
  if (!Given(options, "backward_prefetch")) return "none";
  return options["backward_prefetch"] == "BACKWARD_PRE" ? "pre" : "post";
}

void SetFsdp1(const json& options, PlanRequest& request) {
  request.strategy = StrategyOf(options.at("sharding_strategy"));
  request.fsdp1.use_orig_params = options.at("use_orig_params");
  request.fsdp1.backward_prefetch = BackwardPrefetchOf(options);
  request.fsdp1.forward_prefetch = options.at("forward_prefetch");
  request.fsdp1.limit_all_gathers = options.at("limit_all_gathers");
  request.output_dtype.reset();  // arguments of FSDP2, which the recorder ignores
  request.cast_forward_inputs = true;
}

void SetSharding(const json& options, PlanRequest& request) {
  for (const json& call : options.at("wrap")) {
    request.wrap_calls.push_back({call.at("modules"), ReshardOf(call, "reshard_after_forward")});
  }
  if (Given(options, "prefetch")) {
    request.forward_prefetch = Prefetches(options["prefetch"].at("forward"));
    request.backward_prefetch = Prefetches(options["prefetch"].at("backward"));
  }
  if (Given(options, "no_unshard_in_backward")) {
    request.sharded_in_backward = options["no_unshard_in_backward"].get<std::vector<std::string>>();
  }
  if (options.value("shard_dim1", false)) request.shard_placements = {{"*", 1, 2}};
  if (Given(options, "gradient_divide_factor")) {
    request.gradient_divide_factor = options["gradient_divide_factor"].get<double>();
  }
}

}  // namespace

std::optional<Reshard> ReshardOf(const json& options, const char* name) {
  if (!Given(options, name)) return std::nullopt;
  const json& value = options[name];
  if (value.is_number()) return Reshard::Groups(value.get<int>());
  return Reshard(value.get<bool>());
}

void SetCommon(const json& document, const json& options, PlanRequest& request) {
  request.torch = MajorMinor(document.at("torch").get<std::string>());
  request.world_size = options.at("world_size");
  request.replicate_size = options.value("replicate_size", 1);
  if (Given(options, "rs_max_input_buffers")) {
    request.reduce_input_buffers = options["rs_max_input_buffers"];
  }
  SetPrecision(options, request);
  SetOptimizer(options.at("optimizer"), request);
  SetMicroBatches(options.at("microbatches"), request);
}

PlanRequest CaseRequest(const json& document) {
  const json& options = document.at("case");
  PlanRequest request;
  SetCommon(document, options, request);
  request.kernel_profile = "torch-cpu";
  request.micro_batch = options.at("model").at("batch");
  request.seq = options.at("model").at("seq");
  request.loss = options.at("loss");
  SetSharding(options, request);
  if (Given(options, "strategy")) SetDdp(options, request);
  if (options.at("fsdp") == 1) SetFsdp1(options, request);
  if (Given(options, "checkpoint")) SetCheckpoint(options["checkpoint"], request.checkpoint);
  if (Given(options, "clip")) {
    request.clip = ClipRequest{options["clip"].at("max_norm"), options["clip"].at("foreach")};
  }
  return request;
}

}  // namespace foreshard::golden
