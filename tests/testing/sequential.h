// The simplest executor of kernels there is: a segment's compute ops one after the other on the
// calling thread, each buffer a block of memory of its own. What cleverer ones are compared with.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "proto/base/check.h"
#include "proto/plan.pb.h"

namespace foreshard {

class SequentialRunner {
 public:
  // `plan` outlives the runner.
  explicit SequentialRunner(const pb::Plan& plan) : plan_(plan) {}

  // From now on, ops draw the random numbers of (key, Op.random).
  void SetRandomKey(uint64_t key) { key_ = key; }

  // A buffer's bytes. New memory, at first use or where an op allocates it, is all ones, which read
  // as floats is not a number: what was never written shows.
  std::span<std::byte> bytes(int buffer);
  // The bytes as values of a type.
  template <typename T>
  std::span<T> values(int buffer) {
    const std::span<std::byte> b = bytes(buffer);
    return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
  }

  // Runs ops [first, last) of a segment: allocates, computes, frees. REQUIRES: all are compute ops.
  void Run(const pb::Segment& segment, int first, int last);
  void Run(const pb::Segment& segment) { Run(segment, 0, segment.ops_size()); }
  // The kernel of one op, without its allocations and frees.
  void Compute(const pb::Op& op);

 private:
  std::vector<std::byte>& Memory(int buffer);

  const pb::Plan& plan_;
  uint64_t key_ = 0;
  std::vector<std::vector<std::byte>> memory_;  // empty until used
};

}  // namespace foreshard
