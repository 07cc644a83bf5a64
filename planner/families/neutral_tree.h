// The neutral module tree in which the golden traces describe their models (JSON).
#pragma once

#include <string_view>

#include "proto/base/status.h"

namespace foreshard::pb {
class Model;
}

namespace foreshard {

// `json_text` is a case's "model" object: {"tree": ..., "inputs": [...], "vocab": n, ...}; of a
// recorded wrap policy the tree alone.
StatusOr<pb::Model> ModelFromNeutralTree(std::string_view json_text, std::string_view origin);

}  // namespace foreshard
