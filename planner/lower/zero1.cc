#include "planner/lower/zero1.h"

#include <algorithm>
#include <numeric>

namespace foreshard {

Partition PartitionBySize(std::span<const int64_t> sizes, int ranks) {
  std::vector<int> by_size(sizes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::stable_sort(by_size, [&](int a, int b) { return sizes[a] > sizes[b]; });
  Partition partition;
  partition.owners.resize(sizes.size());
  std::vector<int64_t> loads(ranks, 0);
  for (const int i : by_size) {
    const auto least = std::ranges::min_element(loads);
    *least += sizes[i];
    partition.owners[i] = static_cast<int>(least - loads.begin());
  }
  partition.order = std::move(by_size);
  std::ranges::stable_sort(partition.order,
                           [&](int a, int b) { return partition.owners[a] < partition.owners[b]; });
  return partition;
}

}  // namespace foreshard
