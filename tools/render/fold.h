// Repeated things as one line: "model.layers.0..31 x32".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace foreshard {

// A path with one number in it, or several joined by "+" that count up by one:
// "model.layers.4+model.layers.5" is prefix "model.layers.", 4 to 5, no suffix.
struct NumberedName {
  std::string prefix;
  std::string suffix;
  int64_t first = 0;
  int64_t last = 0;
};
std::optional<NumberedName> ParseNumbered(const std::string& name);

// `count` neighbours that one line stands for, from position `begin` on.
struct Fold {
  size_t begin = 0;
  size_t count = 1;
  std::string label;
};

// Joins neighbours whose numbers follow on each other, that span equally many, and for which
// `alike(first of the run, this one)` holds.
std::vector<Fold> FoldNames(const std::vector<std::string>& names,
                            const std::function<bool(size_t, size_t)>& alike);

}  // namespace foreshard
