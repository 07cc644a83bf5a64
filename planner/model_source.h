// Where models come from: files of several formats and the built-in catalogue.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/base/status.h"

namespace foreshard::pb {
class Model;
}

namespace foreshard {

// `source` is a path (a Hugging Face config.json, or a native model file: .textproto, .pb, or .json
// with a "root") or a catalogue name ("llama-2-7b"). Errors name the file, and the JSON pointer of
// the offending field.
StatusOr<pb::Model> LoadModel(const std::string& source);

// Names that LoadModel accepts besides files, in order.
std::vector<std::string> CatalogueModels();

}  // namespace foreshard
