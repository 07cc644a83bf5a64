// Memory of this process for a device's buffers and for those of its host: one block per live
// buffer, and freed blocks kept by size for later buffers of the same pool. Taking one back at once
// is safe, since whatever its new owner does is queued on that stream behind the work of the old
// one.
#pragma once

#include <array>
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
  StatusOr<Block> Allocate(int64_t bytes, Pool pool);
  // REQUIRES: allocated from this pool.
  void Free(const Block& block, Pool pool);
  int64_t device_bytes() const { return allocated_[0]; }
  int64_t host_bytes() const { return allocated_[1]; }

 private:
  std::map<std::pair<Pool, int64_t>, std::vector<std::byte*>> free_;  // by size
  std::vector<Block> all_;
  std::array<int64_t, 2> allocated_{};  // on the device, on the host
};

}  // namespace foreshard::exec
