#include "planner/families/family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/families/gpt2.h"
#include "planner/families/hf_config.h"
#include "planner/families/llama.h"
#include "proto/base/text.h"
#include "proto/model.pb.h"

namespace foreshard {
namespace {

struct Family {
  const char* model_type;
  StatusOr<pb::Model> (*build)(const HfConfig&);
};

constexpr Family kFamilies[] = {
    {"gpt2", Gpt2Model},
    {"llama", LlamaModel},
};

Status Unsupported(const HfConfig& config) {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  const auto distance = [&](const std::string& name) {
    return EditDistance(config.model_type(), name);
  };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  return config.Error({"model_type"}, fmt::format("a supported family: {} (nearest: {})",
                                                  fmt::join(names, ", "), *nearest));
}

}  // namespace

StatusOr<pb::Model> ModelFromHfConfig(std::string_view json_text, std::string_view origin) {
  ASSIGN_OR_RETURN(const HfConfig config, HfConfig::Parse(json_text, origin));
  for (const Family& family : kFamilies) {
    if (config.model_type() != std::string_view(family.model_type)) continue;
    ASSIGN_OR_RETURN(pb::Model model, family.build(config));
    // Says for every reader of the model that this is a part of what the file describes.
    if (!config.section().empty()) model.set_name(config.section().substr(1));
    return model;
  }
  return Unsupported(config);
}

}  // namespace foreshard
