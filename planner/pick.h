// Choices by name.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace foreshard {

template <typename T>
struct Choice {
  const char* name;
  T value;
};

// The value of the choice that is called `name`. Errors: kInvalidArgument, naming what there is.
template <typename T, size_t n>
StatusOr<T> Pick(const char* what, const std::string& name, const Choice<T> (&choices)[n]) {
  std::vector<std::string> known;
  for (const Choice<T>& c : choices) {
    if (name == c.name) return c.value;
    known.push_back(c.name);
  }
  const auto nearest = NearestMatch(name, known);
  return InvalidArgument(fmt::format("{}: unknown \"{}\"; expected {}{}", what, name,
                                     fmt::join(known, ", "),
                                     nearest ? fmt::format(" (did you mean {}?)", *nearest) : ""));
}

}  // namespace foreshard
