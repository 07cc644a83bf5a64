// Rotary positions as a Hugging Face config describes them.
#pragma once

#include "planner/families/hf_config.h"

namespace foreshard::pb {
class Rotary;
}

namespace foreshard {

// Reads "rope_parameters" or, of before transformers 5, "rope_scaling" and "rope_theta". Refuses
// what changes the frequencies in other ways than a plan can say.
Status ReadRotary(const HfConfig& config, int64_t head_dim, pb::Rotary* rotary);

}  // namespace foreshard
