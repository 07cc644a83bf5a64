// A model as an indented tree of modules with their parameter counts.
#pragma once

#include <string>

namespace foreshard::pb {
class Model;
}

namespace foreshard {

struct ModelTextOptions {
  bool parameters = false;  // list each parameter with its shape
};

// Equal neighbours with consecutive numbers for names are one line: "0..31 x32".
std::string RenderModel(const pb::Model& model, const ModelTextOptions& options);

}  // namespace foreshard
