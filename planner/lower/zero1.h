// ZeroRedundancyOptimizer: every parameter is updated by one rank, which keeps its state and sends
// it to all others. docs/ddp.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace foreshard {

// Which rank updates what.
struct Partition {
  std::vector<int> owners;  // per parameter
  std::vector<int> order;   // parameters as they are sent: rank by rank
};

// Parameters from the largest to the smallest, each to the rank that has least so far, the first of
// several.
Partition PartitionBySize(std::span<const int64_t> sizes, int ranks);

}  // namespace foreshard
