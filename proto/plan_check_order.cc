// Rules order and lifetime across streams, and that steady leaves the queues as it found them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/happens_before.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

using Point = HappensBefore::Point;
using OpRef = HappensBefore::OpRef;

class OrderWalk {
 public:
  explicit OrderWalk(const pb::Plan& plan)
      : plan_(plan),
        order_(plan),
        streams_(static_cast<size_t>(plan.streams_size())),
        programs_(plan.programs_size() - 1 + WalkedRepetitions(plan)),
        lives_(static_cast<size_t>(plan.buffers_size())),
        reads_(lives_.size() * streams_),
        owed_(streams_ * streams_),
        owed_to_(owed_.size()),
        in_steady_(static_cast<size_t>(plan.segments_size())),
        works_in_steady_(streams_) {
    for (const pb::SegmentUse& use : plan.programs(plan.programs_size() - 1).uses()) {
      in_steady_[static_cast<size_t>(use.segment())] = true;
      for (const pb::Op& op : plan.segments(use.segment()).ops()) {
        if (op.has_stream()) works_in_steady_[static_cast<size_t>(op.stream())] = true;
      }
    }
  }

  void BeginProgram(int) {}
  void BeginSegment(int number, int segment, int) {
    number_ = number;
    order_.BeginSegment(number, segment);
  }

  Status Visit(int segment, int index) {
    const pb::Op& op = plan_.segments(segment).ops(index);
    here_ = {number_, segment, index};
    ++visit_;
    for (const int32_t b : op.allocs()) Begin(b);
    order_.Issue(index);
    if (op.has_stream()) {
      RETURN_IF_ERROR(CheckReuse(op.stream()));
      for (const int32_t b : op.in()) RETURN_IF_ERROR(Read(b));
      for (const int32_t b : op.out()) RETURN_IF_ERROR(Write(b));
      RETURN_IF_ERROR(UseScratch(op));
    }
    for (const int32_t b : op.frees()) End(b);
    return OkStatus();
  }

  // `steady` begins where steps like itself have ended, and ends there.
  Status EndProgram(int number) {
    if (number + 2 < programs_) return OkStatus();
    const std::vector<OpRef> before = std::exchange(queues_, Queues(number));
    return number + 1 == programs_ ? CompareQueues(before) : OkStatus();
  }

 private:
  // Since a buffer was allocated.
  struct Life {
    Point writer;
    int32_t queued = 0;  // ops on the buffer's stream when it was allocated
    bool used = false;
    int64_t visit = 0;  // that allocated it
  };

  Life& life(int32_t buffer) { return lives_[static_cast<size_t>(buffer)]; }
  // Per stream, the last read since the last write.
  int32_t* reads(int32_t buffer) { return &reads_[static_cast<size_t>(buffer) * streams_]; }

  Status Broken(std::string_view rule, const std::string& what) const {
    return plan_check::Broken(
        rule, OpPlace(plan_, plan_.segments(here_.segment), here_.op),
        fmt::format("{} (program \"{}\")", what, WalkedProgram(plan_, here_.program).name()));
  }
  std::string Name(const OpRef& ref) const {
    std::string name = OpPlace(plan_, plan_.segments(ref.segment), ref.op);
    return ref.program == here_.program ? name : name + " of the step before";
  }

  void Begin(int32_t buffer) {
    life(buffer) = {{}, order_.issued(plan_.buffers(buffer).stream()), false, visit_};
    std::fill_n(reads(buffer), streams_, 0);
  }

  // What is allocated and freed by the op, and not listed as read or written, is its scratch.
  Status UseScratch(const pb::Op& op) {
    for (const int32_t b : op.frees()) {
      if (life(b).visit == visit_ && !life(b).used) RETURN_IF_ERROR(Write(b));
    }
    return OkStatus();
  }

  Status CheckRecycled(int32_t buffer) const {
    const int32_t pool = plan_.buffers(buffer).stream();
    const Point queued{pool, lives_[static_cast<size_t>(buffer)].queued};
    if (pool == order_.last().stream || order_.HasEnded(queued)) return OkStatus();
    return Broken("lifetime",
                  fmt::format("uses buffer {} while {}, queued on the buffer's stream before it "
                              "was allocated, may still use the same bytes",
                              buffer, Name(order_.ref(queued))));
  }

  Status Read(int32_t buffer) {
    if (plan_.buffers(buffer).bytes() == 0) return OkStatus();
    Life& l = life(buffer);
    if (!order_.HasEnded(l.writer)) {
      return Broken("order", fmt::format("reads buffer {}, which {} may still be writing", buffer,
                                         Name(order_.ref(l.writer))));
    }
    RETURN_IF_ERROR(CheckRecycled(buffer));
    l.used = true;
    reads(buffer)[order_.last().stream] = order_.last().position;
    return OkStatus();
  }

  Status Write(int32_t buffer) {
    if (plan_.buffers(buffer).bytes() == 0) return OkStatus();
    Life& l = life(buffer);
    if (l.used && l.writer == order_.last()) return OkStatus();  // listed twice
    if (!order_.HasEnded(l.writer)) {
      return Broken("order", fmt::format("writes buffer {}, which {} may still be writing", buffer,
                                         Name(order_.ref(l.writer))));
    }
    int32_t* const read = reads(buffer);
    for (int s = 0; s < order_.streams(); ++s) {
      // An op that works in place has just read what it writes.
      if (s == order_.last().stream || order_.HasEnded({s, read[s]})) continue;
      return Broken("order", fmt::format("writes buffer {}, which {} may still be reading", buffer,
                                         Name(order_.ref({s, read[s]}))));
    }
    RETURN_IF_ERROR(CheckRecycled(buffer));
    std::fill_n(read, streams_, 0);
    l.used = true;
    l.writer = order_.last();
    return OkStatus();
  }

  // From now on the next op of the buffer's stream may find its bytes in other hands.
  void End(int32_t buffer) {
    const Life& l = life(buffer);
    if (plan_.buffers(buffer).bytes() == 0 || !l.used) return;
    Owe(l.writer, buffer);
    for (int s = 0; s < order_.streams(); ++s) Owe({s, reads(buffer)[s]}, buffer);
  }

  // What the allocator knows of it waits for by itself.
  void Owe(Point use, int32_t buffer) {
    const pb::Buffer& b = plan_.buffers(buffer);
    const int32_t pool = b.stream();
    if (use.stream == pool || std::ranges::count(b.recorded_on(), use.stream) > 0) return;
    const size_t slot = static_cast<size_t>(pool) * streams_ + static_cast<size_t>(use.stream);
    if (use.position <= owed_[slot]) return;
    owed_[slot] = use.position;
    owed_to_[slot] = buffer;
  }

  // The op issued last is the first on its stream since the buffers were freed.
  Status CheckReuse(int stream) {
    const size_t row = static_cast<size_t>(stream) * streams_;
    for (int s = 0; s < order_.streams(); ++s) {
      int32_t& owed = owed_[row + static_cast<size_t>(s)];
      if (!order_.HasEnded({s, owed})) {
        return Broken(
            "lifetime",
            fmt::format("may reuse the bytes of buffer {}, which was freed while {} may "
                        "still use it",
                        owed_to_[row + static_cast<size_t>(s)], Name(order_.ref({s, owed}))));
      }
      owed = 0;
    }
    return OkStatus();
  }

  // Per pair of streams (and the host as last waiter), the first op of the second that whatever
  // runs next on the first does not wait for. Counts programs backwards from `number`.
  std::vector<OpRef> Queues(int number) const {
    std::vector<OpRef> queues;
    const int n = order_.streams();
    for (int waiter = 0; waiter <= n; ++waiter) {
      for (int s = 0; s < n; ++s) {
        const bool host = waiter == n;
        const bool works = host || works_in_steady_[static_cast<size_t>(waiter)];
        queues.emplace_back();
        if (!works || s == waiter) continue;
        int32_t position = (host ? order_.KnownEndedByHost(s) : order_.KnownEnded(waiter, s)) + 1;
        for (; position <= order_.issued(s); ++position) {
          OpRef ref = order_.ref({s, position});
          if (!in_steady_[static_cast<size_t>(ref.segment)]) continue;
          // How far the host runs ahead is a matter of time: it may never wait.
          ref.program = host ? 0 : number - ref.program;
          queues.back() = ref;
          break;
        }
      }
    }
    return queues;
  }

  Status CompareQueues(const std::vector<OpRef>& before) const {
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == queues_[i]) continue;
      const size_t waiter = i / streams_;
      const auto describe = [&](const OpRef& ref) {
        if (ref.segment < 0) return std::string("nothing");
        return OpPlace(plan_, plan_.segments(ref.segment), ref.op) +
               (ref.program == 0 ? "" : fmt::format(", {} steps back,", ref.program));
      };
      return plan_check::Broken(
          "steady", "program \"steady\"",
          fmt::format(
              "what {} may run ahead of on stream \"{}\" begins with {} at its end, with "
              "{} at its start",
              waiter == streams_
                  ? "the host"
                  : fmt::format("stream \"{}\"", plan_.streams(static_cast<int>(waiter)).name()),
              plan_.streams(static_cast<int>(i % streams_)).name(), describe(queues_[i]),
              describe(before[i])));
    }
    return OkStatus();
  }

  const pb::Plan& plan_;
  HappensBefore order_;
  const size_t streams_;
  const int programs_;  // that are walked
  int number_ = 0;
  int64_t visit_ = 0;
  OpRef here_;
  std::vector<Life> lives_;
  std::vector<int32_t> reads_;    // rows: buffers
  std::vector<int32_t> owed_;     // rows: pools; per stream the last use of what was freed
  std::vector<int32_t> owed_to_;  // the buffer of that use
  std::vector<bool> in_steady_;   // segments
  std::vector<bool> works_in_steady_;
  std::vector<OpRef> queues_;  // at the end of the last steady step
};

}  // namespace

Status CheckOrder(const pb::Plan& plan) {
  OrderWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
