// A plan compiled once into flat tables, so that the engine's inner loop touches no protobuf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/base/status.h"
#include "proto/base/units.h"
#include "sim/cost/cost_model.h"
#include "sim/ids.h"

namespace foreshard::pb {
class Op;
class Plan;
}  // namespace foreshard::pb

namespace foreshard::sim {

// A part of one of Program's index arrays.
struct Range {
  int32_t begin = 0;
  int32_t end = 0;
};

struct OpRecord {
  SimTime host{0};    // to issue it
  SimTime device{0};  // to run it
  StreamId stream = kNoStream;
  GroupId group = kNoGroup;  // collectives of one group run one after the other
  Range waits;               // in wait_ops: positions in the op's own segment
  Range host_waits;          // in wait_ops
  Range stream_waits;        // in wait_streams
  Range allocs;              // in buffers
  Range frees;               // in buffers
  int32_t phase = 0;         // pb::Phase
  int32_t micro_batch = 0;
};

struct SegmentRecord {
  OpId first{0};
  int32_t size = 0;
};

struct UseRecord {
  SegmentId segment{0};
  int32_t repeat = 1;
};

// Everything the engine needs. Plain data: tests may write it by hand.
struct Program {
  std::vector<OpRecord> ops;  // segments one after the other
  std::vector<int32_t> wait_ops;
  std::vector<StreamId> wait_streams;
  std::vector<BufferId> buffer_lists;
  std::vector<SegmentRecord> segments;
  std::vector<std::vector<UseRecord>> programs;
  std::vector<Bytes> buffer_bytes;
  std::vector<BufferId> resident;
  std::vector<bool> is_compute_stream;
  int groups = 0;

  const OpRecord& op(OpId id) const { return ops[Index(id)]; }
  std::span<const int32_t> WaitOps(Range r) const { return Part(wait_ops, r); }
  std::span<const StreamId> WaitStreams(Range r) const { return Part(wait_streams, r); }
  std::span<const BufferId> Buffers(Range r) const { return Part(buffer_lists, r); }

 private:
  template <typename T>
  static std::span<const T> Part(const std::vector<T>& all, Range r) {
    return {all.data() + r.begin, all.data() + r.end};
  }
};

// REQUIRES: CheckPlan(plan) is OK and `costs` was made for it.
// Errors: kInvalidArgument when an op or a program takes longer than the clock should have to count
// (kLongestProgram), or a time is no number.
inline constexpr Seconds kLongestProgram{100'000};
StatusOr<Program> Compile(const pb::Plan& plan, const CostModel& costs);

// The name of an op's kind in files and reports: "compute", "all_gather", ...
std::string KindName(const pb::Op& op);

}  // namespace foreshard::sim
