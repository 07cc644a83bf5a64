#include "tests/golden/golden_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "planner/families/family.h"
#include "planner/families/neutral_tree.h"

namespace foreshard::golden {
namespace {

namespace fs = std::filesystem;

// Absent, null, false, "none" and objects of nothing but those mean: not asked for.
bool Asked(const json& options, const char* name) {
  if (!options.contains(name)) return false;
  const json& value = options[name];
  if (value.is_object()) {
    return std::any_of(value.begin(), value.end(), [](const json& v) { return !v.is_null(); });
  }
  return !value.is_null() && value != false && value != "none";
}

std::string UnsupportedOptimizer(const json& optimizer) {
  if (optimizer.is_null()) return "";
  const std::string kind = optimizer.at("kind");
  if (kind != "adamw" && kind != "sgd") return "optimizer " + kind;
  if (optimizer.value("foreach", false) || optimizer.value("fused", false)) return "";
  return kind + " as a loop over parameters";
}

std::string UnsupportedInBoth(const json& options) {
  for (const char* name : {"checkpoint", "ac", "clip", "prefetch", "forward_prefetch", "shard_dim1",
                           "rs_max_input_buffers", "no_unshard_in_backward"}) {
    if (Asked(options, name)) return fmt::format("{} {}", name, options[name].dump());
  }
  if (options.value("rank", 0) != 0) return "a rank other than 0";
  if (options.value("replicate_size", 1) != 1) return "replicate_size > 1";
  if (options.at("microbatches").value("n", 1) != 1) return "several micro-batches";
  if (options.at("param_dtype") == "fp16" || options.at("mixed_precision").at("param") == "fp16") {
    return "fp16";
  }
  return UnsupportedOptimizer(options.at("optimizer"));
}

std::string UnsupportedSmall(const json& document) {
  const json& options = document.at("case");
  if (options.at("kind") != "train") return fmt::format("kind {}", options.at("kind").dump());
  if (options.at("fsdp") != 2) return "FSDP1";
  if (!document.contains("units")) return "a file without units";
  if (document.at("torch").get<std::string>().starts_with("2.6")) return "torch 2.6";
  for (const json& call : options.at("wrap")) {
    if (call.at("reshard_after_forward").is_number()) return "reshard_after_forward as a number";
  }
  return UnsupportedInBoth(options);
}

std::string UnsupportedEndToEnd(const json& document) {
  const json& spec = document.at("spec");
  if (!document.contains("units")) return "a file without units";
  for (const char* name : {"reshard_after_forward", "root_reshard_after_forward"}) {
    if (spec.contains(name) && spec[name].is_number()) return fmt::format("{} as a number", name);
  }
  if (spec.at("attn") != "cuda_flash") return fmt::format("attention {}", spec.at("attn").dump());
  if (spec.at("loss") != "external_fp32") return fmt::format("loss {}", spec.at("loss").dump());
  if (spec.at("layout") != "blocks_root" && spec.at("layout") != "titan") {
    return fmt::format("layout {}", spec.at("layout").dump());
  }
  return UnsupportedInBoth(spec);
}

// "2.15.0+cu132" -> "2.15"
std::string MajorMinor(const std::string& version) {
  const size_t minor = version.find('.');
  return version.substr(0, version.find('.', minor + 1));
}

std::optional<bool> OptionalBool(const json& options, const char* name) {
  if (!options.contains(name) || options[name].is_null()) return std::nullopt;
  return options[name].get<bool>();
}

std::optional<DType> OptionalDType(const json& options, const char* name) {
  if (!options.contains(name) || options[name].is_null()) return std::nullopt;
  return ParseDType(options[name].get<std::string>()).value();
}

json MergedConfig(const json& spec) {
  json config = spec.at("config");
  if (Asked(spec, "config_overrides")) config.update(spec["config_overrides"]);
  if (config.value("model_type", "") == "gpt2") {  // recorded without dropouts
    for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[name] = 0.0;
  }
  return config;
}

void AddCall(PlanRequest& request, std::vector<std::string> modules,
             std::optional<Reshard> reshard) {
  request.wrap_calls.push_back({std::move(modules), reshard});
}

// Where the recorded families keep their parts.
struct Parts {
  std::string layers, embedding, norm, layer_count;
  bool tied_by_default;
};
Parts PartsOf(const json& config) {
  if (config.value("model_type", "") == "gpt2") {
    return {"transformer.h", "transformer.wte", "transformer.ln_f", "n_layer", true};
  }
  return {"model.layers", "model.embed_tokens", "model.norm", "num_hidden_layers", false};
}

// Both layouts as calls, leaf modules first.
void WrapEndToEnd(const json& spec, PlanRequest& request) {
  const json config = MergedConfig(spec);
  const bool titan = spec.at("layout") == "titan";
  const Parts parts = PartsOf(config);
  const bool tied = config.value("tie_word_embeddings", parts.tied_by_default);
  const std::optional<Reshard> reshard = OptionalBool(spec, "reshard_after_forward");
  if (titan && !tied) AddCall(request, {parts.embedding}, reshard);
  const int layers = config.at(parts.layer_count);
  for (int i = 0; i < layers; ++i) {
    AddCall(request, {fmt::format("{}.{}", parts.layers, i)}, reshard);
  }
  if (titan && tied) AddCall(request, {parts.embedding, parts.norm, "lm_head"}, false);
  if (titan && !tied) AddCall(request, {parts.norm, "lm_head"}, false);
  AddCall(request, {""}, OptionalBool(spec, "root_reshard_after_forward"));
}

void SetCommon(const json& document, const json& options, PlanRequest& request) {
  request.torch = MajorMinor(document.at("torch").get<std::string>());
  request.world_size = options.at("world_size");
  request.original_dtype = ParseDType(options.at("param_dtype").get<std::string>()).value();
  request.param_dtype = OptionalDType(options.at("mixed_precision"), "param");
  request.reduce_dtype = OptionalDType(options.at("mixed_precision"), "reduce");
  const json& optimizer = options.at("optimizer");
  if (optimizer.is_null()) {
    request.optimizer = "none";
  } else {
    request.optimizer = optimizer.at("kind");
    request.optimizer_impl = optimizer.value("fused", false) ? "fused" : "foreach";
    if (optimizer.contains("momentum")) request.momentum = optimizer["momentum"];
    if (optimizer.contains("weight_decay")) request.weight_decay = optimizer["weight_decay"];
  }
}

PlanRequest SmallRequest(const json& document) {
  const json& options = document.at("case");
  PlanRequest request;
  SetCommon(document, options, request);
  request.kernel_profile = "torch-cpu";
  request.micro_batch = options.at("model").at("batch");
  request.seq = options.at("model").at("seq");
  request.loss = options.at("loss");
  for (const json& call : options.at("wrap")) {
    AddCall(request, call.at("modules"), OptionalBool(call, "reshard_after_forward"));
  }
  return request;
}

PlanRequest EndToEndRequest(const json& document) {
  const json& spec = document.at("spec");
  PlanRequest request;
  SetCommon(document, spec, request);
  request.kernel_profile = "torch-cuda";
  request.attention = "flash";
  request.micro_batch = spec.at("micro_batch");
  request.seq = spec.at("seq");
  request.loss = "cross_entropy_fp32";
  WrapEndToEnd(spec, request);
  return request;
}

}  // namespace

std::vector<fs::path> CasesIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code ignored;  // a missing folder has no cases, and that is reported as such
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

StatusOr<json> ReadDocument(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  json document = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return InvalidInput(path.string() + ": not JSON");
  return document;
}

bool IsEndToEnd(const json& document) { return document.contains("spec"); }

std::string Unsupported(const json& document) {
  if (IsEndToEnd(document)) return UnsupportedEndToEnd(document);
  if (!document.contains("case")) return "neither a small trace nor a whole model";
  return UnsupportedSmall(document);
}

StatusOr<pb::Model> ModelOf(const json& document) {
  const std::string name = document.value("name", "case");
  if (!IsEndToEnd(document)) {
    return ModelFromNeutralTree(document.at("case").at("model").dump(), name);
  }
  return ModelFromHfConfig(MergedConfig(document.at("spec")).dump(), name);
}

PlanRequest RequestOf(const json& document) {
  return IsEndToEnd(document) ? EndToEndRequest(document) : SmallRequest(document);
}

}  // namespace foreshard::golden
