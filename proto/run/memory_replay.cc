#include "proto/run/memory_replay.h"

#include <utility>

#include "proto/base/check.h"

namespace foreshard::run {
namespace {

void RaiseTo(Bytes bytes, int64_t op, const BytesByClass& by_class, Watermark& mark) {
  if (bytes <= mark.bytes) return;
  mark = Watermark{bytes, op, by_class};
}

}  // namespace

MemoryReplay::MemoryReplay(std::vector<ReplayBuffer> buffers,
                           std::array<bool, kMemoryClasses> managed,
                           const std::vector<int32_t>& resident)
    : buffers_(std::move(buffers)), managed_(managed), alive_(buffers_.size(), false) {
  for (const ReplayBuffer& buffer : buffers_) {
    CHECK(0 <= buffer.memory_class && buffer.memory_class < kMemoryClasses);
    class_.push_back(buffer.memory_class);
  }
  for (int32_t buffer : resident) Change(buffer, +1);
  peak_ = Watermark{total_, kNoOp, by_class_};
  changed_since_peak_.clear();
}

void MemoryReplay::BeginPhase(int64_t key) {
  Finish();
  PhaseWatermarks phase;
  phase.key = key;
  phase.start = total_;
  phase.peak = Watermark{total_, kNoOp, by_class_};
  phase.managed_peak = Watermark{managed_total_, kNoOp, by_class_};
  phases_.push_back(phase);
}

void MemoryReplay::Allocate(int32_t buffer, int64_t op) {
  CHECK(!alive_[buffer]) << "buffer " << buffer << " is allocated twice";
  SetClass(buffer, buffers_[buffer].memory_class);
  Change(buffer, +1);
  if (total_ > peak_.bytes) {
    changed_since_peak_.clear();
    reclassified_since_peak_.clear();
  }
  RaiseTo(total_, op, by_class_, peak_);
  if (phases_.empty()) return;
  RaiseTo(total_, op, by_class_, phases_.back().peak);
  RaiseTo(managed_total_, op, by_class_, phases_.back().managed_peak);
}

void MemoryReplay::Free(int32_t buffer) {
  CHECK(alive_[buffer]) << "buffer " << buffer << " is freed while it is not alive";
  Change(buffer, -1);
}

void MemoryReplay::Settle(int32_t buffer, int memory_class, int64_t op) {
  CHECK(alive_[buffer]) << "buffer " << buffer << " settles while it is not alive";
  Change(buffer, -1);
  SetClass(buffer, memory_class);
  Change(buffer, +1);
  if (phases_.empty()) return;
  RaiseTo(managed_total_, op, by_class_, phases_.back().managed_peak);
}

void MemoryReplay::SetClass(int32_t buffer, int memory_class) {
  CHECK(0 <= memory_class && memory_class < kMemoryClasses);
  if (class_[buffer] == memory_class) return;
  reclassified_since_peak_.push_back({buffer, class_[buffer]});
  class_[buffer] = memory_class;
}

int MemoryReplay::ClassAtPeak(int32_t buffer) const {
  for (const Reclassified& r : reclassified_since_peak_) {
    if (r.buffer == buffer) return r.before;
  }
  return class_[buffer];
}

void MemoryReplay::Finish() {
  if (phases_.empty()) return;
  phases_.back().end = total_;
  phases_.back().end_by_class = by_class_;
}

std::vector<int32_t> MemoryReplay::AliveAtPeak() const {
  std::vector<bool> alive = alive_;
  for (int32_t buffer : changed_since_peak_) alive[buffer] = !alive[buffer];
  std::vector<int32_t> result;
  for (size_t i = 0; i < alive.size(); ++i) {
    if (alive[i]) result.push_back(static_cast<int32_t>(i));
  }
  return result;
}

void MemoryReplay::Change(int32_t buffer, int sign) {
  const Bytes change = int64_t{sign} * buffers_[buffer].bytes;
  alive_[buffer] = sign > 0;
  by_class_[class_[buffer]] += change;
  total_ += change;
  if (managed_[class_[buffer]]) managed_total_ += change;
  changed_since_peak_.push_back(buffer);
}

}  // namespace foreshard::run
