// Bytes alive over a sequence of allocations and frees, with the highest moment of each phase and
// of the whole. Knows neither plans nor time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "proto/base/units.h"

namespace foreshard::run {

inline constexpr int kMemoryClasses = 38;
inline constexpr int64_t kNoOp = -1;

// What the caller tells buffers apart by; any meaning.
using BytesByClass = std::array<Bytes, kMemoryClasses>;

struct ReplayBuffer {
  Bytes bytes;
  int memory_class = 0;  // REQUIRES: 0 <= memory_class < kMemoryClasses
};

// A moment and what was alive then.
struct Watermark {
  Bytes bytes;
  int64_t op = kNoOp;  // the caller's name for the op that reached it; kNoOp = the start
  BytesByClass by_class{};
};

struct PhaseWatermarks {
  int64_t key = 0;  // the caller's name for the phase
  Bytes start;
  Bytes end;
  BytesByClass end_by_class{};
  Watermark peak;          // first strict maximum; what is alive at the start counts
  Watermark managed_peak;  // of the managed classes alone
};

class MemoryReplay {
 public:
  // `managed` marks the classes that managed_peak counts. `resident` buffers are alive at once.
  MemoryReplay(std::vector<ReplayBuffer> buffers, std::array<bool, kMemoryClasses> managed,
               const std::vector<int32_t>& resident);

  // A phase lasts until the next one begins.
  void BeginPhase(int64_t key);
  // REQUIRES: the buffer is not alive / is alive.
  void Allocate(int32_t buffer, int64_t op);
  void Free(int32_t buffer);
  // The buffer counts as another class until it is freed. REQUIRES: it is alive.
  void Settle(int32_t buffer, int memory_class, int64_t op);
  // Closes the last phase.
  void Finish();

  Bytes alive_bytes() const { return total_; }
  const std::vector<PhaseWatermarks>& phases() const { return phases_; }
  // Over everything since construction.
  const Watermark& peak() const { return peak_; }
  // Buffers alive at peak(), ascending.
  std::vector<int32_t> AliveAtPeak() const;
  int ClassAtPeak(int32_t buffer) const;

 private:
  void Change(int32_t buffer, int sign);
  void SetClass(int32_t buffer, int memory_class);

  std::vector<ReplayBuffer> buffers_;
  std::vector<int> class_;  // that each counts as now
  std::array<bool, kMemoryClasses> managed_;
  std::vector<bool> alive_;
  BytesByClass by_class_{};
  Bytes total_;
  Bytes managed_total_;
  Watermark peak_;
  std::vector<int32_t> changed_since_peak_;  // each toggles its buffer
  struct Reclassified {
    int32_t buffer;
    int before;
  };
  std::vector<Reclassified> reclassified_since_peak_;
  std::vector<PhaseWatermarks> phases_;
};

}  // namespace foreshard::run
