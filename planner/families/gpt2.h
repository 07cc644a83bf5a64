// GPT-2: learned positions, LayerNorms with biases, one fused projection, tied head.
#pragma once

#include "planner/families/hf_config.h"
#include "proto/model.pb.h"

namespace foreshard {

// transformers' GPT2LMHeadModel as `config` describes it, dropouts included.
StatusOr<pb::Model> Gpt2Model(const HfConfig& config);

}  // namespace foreshard
