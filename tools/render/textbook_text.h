// The closed forms of textbooks beside the simulated figures.
#pragma once

#include <string>

#include "tools/render/figures.h"

namespace foreshard::pb {
class Textbook;
}

namespace foreshard {

std::string TextbookText(const pb::Textbook& textbook, const Style& style);

}  // namespace foreshard
