// Future events in time order; equal times come out in the order they were added, so that a run is
// reproducible. The queue owns the clock: popping an event moves it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/units.h"

namespace foreshard::sim {

template <typename Event>
class EventQueue {
 public:
  SimTime now() const { return now_; }
  bool empty() const { return heap_.empty(); }

  // REQUIRES: when >= now().
  void At(SimTime when, Event event) {
    CHECK_GE(when.count(), now_.count()) << "an event in the past";
    heap_.push_back(Entry{when, next_sequence_++, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }

  // The earliest event, and moves the clock to it; nullopt when there is none.
  std::optional<Event> Pop() {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.when;
    return std::move(entry.event);
  }

 private:
  struct Entry {
    SimTime when;
    int64_t sequence;
    Event event;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
    }
  };

  std::vector<Entry> heap_;
  SimTime now_{0};
  int64_t next_sequence_ = 0;
};

}  // namespace foreshard::sim
