#include "exec/cpu/memory.h"

#include <fmt/format.h>

#include <cstdlib>

#include "exec/cpu/sanitizers.h"
#include "proto/base/check.h"

namespace foreshard::exec {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line, and the widest vector

}  // namespace

CpuMemory::~CpuMemory() {
  for (const Block& block : all_) {
    sanitizers::Permit(block.data, static_cast<size_t>(block.bytes));
    std::free(block.data);
  }
}

StatusOr<Block> CpuMemory::Allocate(int64_t bytes, Pool pool) {
  std::vector<std::byte*>& kept = free_[{pool, bytes}];
  if (!kept.empty()) {
    std::byte* data = kept.back();
    kept.pop_back();
    allocated_[pool.host] += bytes;
    return Block{data, bytes};
  }
  const int64_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;  // never 0
  void* data = std::aligned_alloc(kAlignment, static_cast<size_t>(rounded));
  if (data == nullptr) {
    return Unavailable(fmt::format("memory: the host has no {} bytes left for a buffer", bytes));
  }
  all_.push_back(Block{static_cast<std::byte*>(data), bytes});
  allocated_[pool.host] += bytes;
  return all_.back();
}

void CpuMemory::Free(const Block& block, Pool pool) {
  CHECK_LE(block.bytes, allocated_[pool.host]);
  allocated_[pool.host] -= block.bytes;
  free_[{pool, block.bytes}].push_back(block.data);
}

}  // namespace foreshard::exec
