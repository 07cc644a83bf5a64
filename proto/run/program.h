// A plan as flat tables, so that inner loops touch no protobuf: what the events of a run refer to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/base/units.h"
#include "proto/run/ids.h"

namespace foreshard::pb {
class Buffer;
class Op;
class Plan;
}  // namespace foreshard::pb

namespace foreshard::run {

// A part of one of Program's index arrays.
struct Range {
  int32_t begin = 0;
  int32_t end = 0;
};

struct OpRecord {
  SimTime host{0};    // to issue it, as a simulator predicts; 0 where times are measured
  SimTime device{0};  // to run it, likewise
  StreamId stream = kNoStream;
  GroupId group = kNoGroup;   // collectives of one group run one after the other
  EventId record = kNoEvent;  // of all that is queued on record_stream once it is issued
  StreamId record_stream = kNoStream;
  Range waits;              // in wait_ops: positions in the op's own segment
  Range host_waits;         // in wait_ops
  Range stream_waits;       // in wait_streams
  Range event_waits;        // of the host, in wait_records
  Range allocs;             // in buffers
  Range frees;              // in buffers
  int32_t phase = 0;        // pb::Phase
  int32_t micro_batch = 0;  // of the first repetition of its segment
};

// The record of the event that `back` others have followed.
struct RecordRef {
  EventId event{0};
  int32_t back = 0;
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
  std::vector<RecordRef> wait_records;
  std::vector<BufferId> buffer_lists;
  std::vector<SegmentRecord> segments;
  std::vector<std::vector<UseRecord>> programs;
  std::vector<Bytes> buffer_bytes;  // on the device or the host
  std::vector<BufferId> resident;
  std::vector<bool> is_compute_stream;
  std::vector<bool> is_host_stream;
  int groups = 0;
  std::vector<int32_t> event_depths;  // by event: how many of its last records waits may ask for

  const OpRecord& op(OpId id) const { return ops[Index(id)]; }
  std::span<const int32_t> WaitOps(Range r) const { return Part(wait_ops, r); }
  std::span<const StreamId> WaitStreams(Range r) const { return Part(wait_streams, r); }
  std::span<const RecordRef> WaitRecords(Range r) const { return Part(wait_records, r); }
  std::span<const BufferId> Buffers(Range r) const { return Part(buffer_lists, r); }

 private:
  template <typename T>
  static std::span<const T> Part(const std::vector<T>& all, Range r) {
    return {all.data() + r.begin, all.data() + r.end};
  }
};

// The plan on one rank, without times. REQUIRES: CheckPlan(plan) is OK and 0 <= rank < world size.
Program Flatten(const pb::Plan& plan, int rank = 0);

// Bytes of a buffer on one rank.
Bytes BytesOn(const pb::Buffer& buffer, int rank);

// The name of an op's kind in files and reports: "compute", "all_gather", ...
std::string KindName(const pb::Op& op);

}  // namespace foreshard::run
