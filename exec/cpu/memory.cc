#include "exec/cpu/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

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

void CpuMemory::Free(const Block& block, Pool pool, std::vector<const CpuEvent*> uses) {
  CHECK_LE(block.bytes, allocated_[pool.host]);
  allocated_[pool.host] -= block.bytes;
  if (uses.empty()) return GiveOut({block, pool});
  held_.push_back({{block, pool}, std::move(uses)});
}

std::vector<CpuMemory::Freed> CpuMemory::TakeBack() {
  std::vector<Freed> freed;
  std::erase_if(held_, [&](const Held& held) {
    const bool is_over = std::ranges::all_of(held.uses, &CpuEvent::HasCome);
    if (is_over) freed.push_back(held.freed);
    return is_over;
  });
  for (const Freed& f : freed) GiveOut(f);
  return freed;
}

}  // namespace foreshard::exec
