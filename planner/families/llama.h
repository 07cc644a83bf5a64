// The llama family: Llama 1 to 3.x and what shares its architecture (TinyLlama, Yi, ...).
#pragma once

#include "proto/base/status.h"

namespace foreshard::pb {
class Model;
}

namespace foreshard {

class HfConfig;

// The module tree of transformers' LlamaForCausalLM. Fields that size the model must be there;
// others take the defaults of LlamaConfig.
StatusOr<pb::Model> LlamaModel(const HfConfig& config);

}  // namespace foreshard
