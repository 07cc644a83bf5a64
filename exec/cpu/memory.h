// Memory of this process for a device's buffers and for those of its host: one block per live
// buffer, and freed blocks kept by size for later buffers of the same pool. Taking one back at once
// is safe, since whatever its new owner does is queued on that stream behind the work of the old
// one; but not where other streams use it, so that those are held back until they have.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "exec/cpu/stream.h"
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
  // The block has another owner once all of `uses` have come. REQUIRES: allocated from this pool.
  void Free(const Block& block, Pool pool, std::vector<const CpuEvent*> uses);
  struct Freed {
    Block block;
    Pool pool;
  };
  // Those that were held back and whose uses have come meanwhile: from now on they are given out.
  std::vector<Freed> TakeBack();
  int64_t device_bytes() const { return allocated_[0]; }
  int64_t host_bytes() const { return allocated_[1]; }

 private:
  struct Held {
    Freed freed;
    std::vector<const CpuEvent*> uses;
  };
  void GiveOut(const Freed& freed) {
    free_[{freed.pool, freed.block.bytes}].push_back(freed.block.data);
  }

  std::map<std::pair<Pool, int64_t>, std::vector<std::byte*>> free_;  // by size
  std::vector<Held> held_;
  std::vector<Block> all_;
  std::array<int64_t, 2> allocated_{};  // on the device, on the host
};

}  // namespace foreshard::exec
