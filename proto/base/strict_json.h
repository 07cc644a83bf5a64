// JSON texts as values, without the latitude of JSON: a key that an object has twice is refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "proto/base/status.h"

namespace foreshard {

// kInvalidInput, with `origin` before what is wrong, for what does not parse, nests deeper than 100
// levels or repeats a key.
StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, std::string_view origin);

}  // namespace foreshard
