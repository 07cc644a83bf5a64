#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/golden/golden_request.h"

namespace foreshard::golden {
namespace {

using nlohmann::json;

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

std::vector<std::string> LayersOf(const json& config) {
  const Parts parts = PartsOf(config);
  std::vector<std::string> layers;
  const int count = config.at(parts.layer_count);
  for (int i = 0; i < count; ++i) layers.push_back(fmt::format("{}.{}", parts.layers, i));
  return layers;
}

// Both layouts as calls, leaf modules first.
void Wrap(const json& spec, const json& config, PlanRequest& request) {
  const bool titan = spec.at("layout") == "titan";
  const Parts parts = PartsOf(config);
  const bool tied = config.value("tie_word_embeddings", parts.tied_by_default);
  const std::optional<Reshard> reshard = ReshardOf(spec, "reshard_after_forward");
  std::vector<WrapRequest>& calls = request.wrap_calls;
  if (titan && !tied) calls.push_back({{parts.embedding}, reshard});
  for (const std::string& layer : LayersOf(config)) calls.push_back({{layer}, reshard});
  if (titan && tied) calls.push_back({{parts.embedding, parts.norm, "lm_head"}, false});
  if (titan && !tied) calls.push_back({{parts.norm, "lm_head"}, false});
  calls.push_back({{""}, ReshardOf(spec, "root_reshard_after_forward")});
}

// "none", "wrapper" and "wrapper_every_2" (the wrapper is inside the unit), "hf" (around it).
void Checkpoint(const std::string& how, const json& config, CheckpointRequest& checkpoint) {
  if (how == "none") return;
  const std::vector<std::string> layers = LayersOf(config);
  const size_t step = how == "wrapper_every_2" ? 2 : 1;
  for (size_t i = 0; i < layers.size(); i += step) checkpoint.modules.push_back(layers[i]);
  checkpoint.outside_unit = how == "hf";
}

}  // namespace

json ConfigOf(const json& spec) {
  json config = spec.at("config");
  if (spec.contains("config_overrides") && !spec["config_overrides"].is_null()) {
    config.update(spec["config_overrides"]);
  }
  if (config.value("model_type", "") == "gpt2") {  // recorded without dropouts
    for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config[name] = 0.0;
  }
  return config;
}

PlanRequest SpecRequest(const json& document) {
  const json& spec = document.at("spec");
  const json config = ConfigOf(spec);
  PlanRequest request;
  SetCommon(document, spec, request);
  request.kernel_profile = "torch-cuda";
  request.attention = "flash";
  request.micro_batch = spec.at("micro_batch");
  request.seq = spec.at("seq");
  request.loss = spec.at("loss") == "hf_internal" ? "cross_entropy_in_model" : "cross_entropy_fp32";
  Wrap(spec, config, request);
  Checkpoint(spec.value("ac", "none"), config, request.checkpoint);
  if (spec.value("forward_prefetch", false)) {
    const std::vector<std::string> layers = LayersOf(config);
    for (size_t i = 0; i + 1 < layers.size(); ++i) {
      request.forward_prefetch.push_back({layers[i], {layers[i + 1]}});
    }
  }
  return request;
}

}  // namespace foreshard::golden
