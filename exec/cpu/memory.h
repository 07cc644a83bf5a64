// Host memory for a device's buffers: one block per live buffer, and freed blocks kept by size for
// later buffers of the same stream. Taking one back at once is safe, since whatever its new owner
// does is queued on that stream behind the work of the old one.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "exec/device.h"

namespace foreshard::exec {

class CpuMemory {
 public:
  CpuMemory() = default;
  ~CpuMemory();
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;

  // kUnavailable when the host has none left.
  StatusOr<Block> Allocate(int64_t bytes, int stream);
  // REQUIRES: allocated for this stream.
  void Free(const Block& block, int stream);
  int64_t allocated_bytes() const { return allocated_; }

 private:
  std::map<std::pair<int, int64_t>, std::vector<std::byte*>> free_;  // by stream and size
  std::vector<Block> all_;
  int64_t allocated_ = 0;
};

}  // namespace foreshard::exec
