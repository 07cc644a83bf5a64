// What may be asked for, one choice and value at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/small_world/world.h"

namespace foreshard {

// One value of a choice that is not its default.
struct Move {
  std::string choice;
  std::string value;
  std::function<void(SmallCase&)> apply;
};

const std::vector<Move>& MovesOf(Library library);

}  // namespace foreshard
