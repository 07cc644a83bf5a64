// Model families: each turns a Hugging Face config.json into a module tree (proto/model.proto).
#pragma once

#include <string_view>

#include "proto/base/status.h"

namespace foreshard::pb {
class Model;
}

namespace foreshard {

// Parses the text of a config.json and builds the model of its `model_type`.
// Errors are kInvalidInput, "ORIGIN: /json/pointer: found ..., expected ...".
StatusOr<pb::Model> ModelFromHfConfig(std::string_view json_text, std::string_view origin);

}  // namespace foreshard
