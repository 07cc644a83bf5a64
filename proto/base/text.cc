#include "proto/base/text.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace foreshard {

size_t EditDistance(std::string_view a, std::string_view b) {
  // row[j] = distance of the first i bytes of a to the first j bytes of b.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::optional<std::string> NearestMatch(std::string_view word,
                                        std::span<const std::string> candidates) {
  const size_t limit = std::max<size_t>(1, word.size() / 3);
  const std::string* nearest = nullptr;
  size_t best = limit + 1;
  for (const std::string& candidate : candidates) {
    const size_t difference = candidate.size() > word.size() ? candidate.size() - word.size()
                                                             : word.size() - candidate.size();
    if (difference >= best) continue;  // also keeps a hostile word from costing its length
    const size_t distance = EditDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return *nearest;
}

}  // namespace foreshard
