#include "planner/eager/dims.h"

#include <array>

namespace foreshard {

Dims ContiguousStrides(const Dims& shape) {
  Dims strides = shape;
  int64_t next = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

bool IsContiguous(const Dims& shape, const Dims& strides) {
  int64_t next = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != next) return false;
    next *= shape[i];
  }
  return true;
}

bool ViewStrides(const Dims& shape, const Dims& strides, const Dims& to, Dims* result) {
  if (Numel(shape) <= 1 || shape.empty()) {
    *result = ContiguousStrides(to);
    return true;
  }
  *result = to;
  int target = to.size() - 1;
  int64_t base = strides.back();
  int64_t chunk = 1;  // elements of the run of old dimensions that lie densely one in the other
  int64_t covered = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    chunk *= shape[d];
    const bool run_ends = d == 0 || (shape[d - 1] != 1 && strides[d - 1] != chunk * base);
    if (!run_ends) continue;
    while (target >= 0 && (covered < chunk || to[target] == 1)) {
      (*result)[target] = covered * base;
      covered *= to[target];
      --target;
    }
    if (covered != chunk) return false;
    if (d > 0) {
      base = strides[d - 1];
      chunk = 1;
      covered = 1;
    }
  }
  return target == -1;
}

Dims StridesLike(const Dims& shape, const Dims& like) {
  // Outermost first, by insertion: larger strides of `like` go out; dimensions of size 1 and equal
  // strides keep their place.
  std::array<int, Dims::kMax> order{};
  for (int i = 0; i < shape.size(); ++i) {
    int at = i;
    for (int j = i - 1; j >= 0; --j) {
      const int other = order[j];
      if (shape[other] == 1 || shape[i] == 1 || like[other] == like[i]) continue;
      if (like[other] > like[i]) break;
      at = j;
    }
    for (int j = i; j > at; --j) order[j] = order[j - 1];
    order[at] = i;
  }
  Dims strides = shape;
  int64_t next = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[order[i]] = next;
    next *= shape[order[i]];
  }
  return strides;
}

}  // namespace foreshard
