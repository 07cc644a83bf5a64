// What has been recorded of the events of a run: of each record, the op that the host waits for.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/base/check.h"
#include "proto/run/ids.h"
#include "proto/run/program.h"

namespace foreshard::run {

// Keeps of each event as many records as the program's waits may ask for.
class EventRecords {
 public:
  explicit EventRecords(const Program& program) {
    for (const int32_t depth : program.event_depths) {
      rings_.push_back({std::vector<int64_t>(static_cast<size_t>(depth), -1), 0});
    }
  }

  // `sequence` is the last op that was issued on the stream, -1 if there is none.
  void Add(EventId event, int64_t sequence) {
    Ring& ring = rings_[Index(event)];
    if (ring.last.empty()) return;  // nobody waits for it
    ring.last[ring.count++ % ring.last.size()] = sequence;
  }

  // What Add was given. REQUIRES: the record exists, as CheckPlan tests.
  int64_t Find(const RecordRef& record) const {
    const Ring& ring = rings_[Index(record.event)];
    const auto back = static_cast<size_t>(record.back);
    CHECK(back < ring.count) << "no such record of event " << Index(record.event);
    return ring.last[(ring.count - 1 - back) % ring.last.size()];
  }

 private:
  struct Ring {
    std::vector<int64_t> last;
    size_t count = 0;
  };
  std::vector<Ring> rings_;  // by event
};

}  // namespace foreshard::run
