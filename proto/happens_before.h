// What has certainly ended when an op of a plan starts, whatever the times. One walk over the ops
// in issue order with a vector clock for each: per stream, how many of its ops are known to have
// ended. An op starts after
//   - what ran before it on its own stream, and in its communicator,
//   - the ops that it waits for, and for a stream_wait all that is queued on the streams it names,
//   - all that the host has waited for, be it an op or a record of an event,
// and after whatever each of those started after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard {

class HappensBefore {
 public:
  // The position-th op (from 1) issued on a stream; position 0 is no op.
  struct Point {
    int32_t stream = 0;
    int32_t position = 0;
    bool operator==(const Point&) const = default;
  };
  // Where in the plan an op stands: the how-many-eth program, segment, index in the segment.
  struct OpRef {
    int32_t program = -1;
    int32_t segment = -1;
    int32_t op = -1;
    bool operator==(const OpRef&) const = default;
  };

  // REQUIRES: indices of streams, groups, events and waits are in their tables, and waits look past
  // as many records as CheckPlan allows. A wait for a record that does not exist waits for nothing.
  explicit HappensBefore(const pb::Plan& plan);

  // What follows is one more run through the ops of a segment.
  void BeginSegment(int program, int segment);
  // The host issues the op of this index. REQUIRES: it issued those before it.
  void Issue(int op);

  // Of the op issued last, on whatever stream. REQUIRES: it has one.
  Point last() const { return last_; }
  bool HasEnded(Point p) const { return start_[static_cast<size_t>(p.stream)] >= p.position; }

  int streams() const { return streams_; }
  int32_t issued(int stream) const { return issued_[static_cast<size_t>(stream)]; }
  const OpRef& ref(Point p) const {
    return refs_[static_cast<size_t>(p.stream)][static_cast<size_t>(p.position) - 1];
  }
  // Ops of `stream` known to have ended when whatever `waiter` runs next can start.
  int32_t KnownEnded(int waiter, int stream) const;
  int32_t KnownEndedByHost(int stream) const { return host_[static_cast<size_t>(stream)]; }

  // One reason for an op to wait, by its place in a list of the op.
  enum class Reason { kWait, kHostWait, kEventWait, kStreamWait };
  // Whether the op, which is issued next, would start after all that this reason names without it.
  bool IsImplied(int op, Reason reason, int index) const;

 private:
  using Clock = std::span<int32_t>;
  using ConstClock = std::span<const int32_t>;

  ConstClock Row(const std::vector<int32_t>& rows, int row) const {
    const auto width = static_cast<size_t>(streams_);
    return ConstClock(rows).subspan(static_cast<size_t>(row) * width, width);
  }
  Clock Row(std::vector<int32_t>& rows, int row) const {
    const auto width = static_cast<size_t>(streams_);
    return Clock(rows).subspan(static_cast<size_t>(row) * width, width);
  }
  // What one wait of the host tells it: that an op has ended, and what that op started after.
  struct Told {
    ConstClock clock;
    Point point;
  };
  // The last records of an event, as many as waits look past and one.
  struct Records {
    std::vector<int32_t> clocks;  // rows: a ring
    std::vector<int32_t> streams;
    int32_t count = 0;  // all that there have been
  };

  void Join(ConstClock with);
  // Waits of the host before it issues an op: for ops, then for records.
  static int HostWaits(const pb::Op& op) { return op.host_waits_size() + op.event_waits_size(); }
  Told TellHost(const pb::Op& op, int wait) const;
  void Enqueue(const pb::Op& op, int op_index);
  void Record(const pb::Op& op);
  bool HostImplies(const pb::Op& op, Point p, int without) const;

  const pb::Plan& plan_;
  const int streams_;
  const pb::Segment* segment_ = nullptr;
  int32_t program_index_ = 0;
  int32_t segment_index_ = 0;
  std::vector<int32_t> issued_;       // per stream
  std::vector<int32_t> host_;         // clock of the host
  std::vector<int32_t> stream_ends_;  // rows: the last op of each stream
  std::vector<int32_t> group_ends_;   // rows: the last collective of each group
  std::vector<int32_t> op_ends_;      // rows: ops of this run through the segment
  std::vector<Point> points_;         // the same ops
  std::vector<Records> records_;      // by event
  std::vector<int32_t> start_;        // of the op issued last
  Point last_;
  std::vector<std::vector<OpRef>> refs_;  // per stream, everything issued
};

}  // namespace foreshard
