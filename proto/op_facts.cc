#include "proto/op_facts.h"

#include <algorithm>

namespace foreshard {

int CollectiveGroup(const pb::Op& op) {
  if (op.has_all_gather()) return op.all_gather().group();
  if (op.has_reduce_scatter()) return op.reduce_scatter().group();
  if (op.has_all_reduce()) return op.all_reduce().group();
  if (op.has_broadcast()) return op.broadcast().group();
  return -1;
}

std::vector<int32_t> EventDepths(const pb::Plan& plan) {
  std::vector<int32_t> depths(static_cast<size_t>(plan.events_size()), 0);
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      for (const pb::EventWait& wait : op.event_waits()) {
        int32_t& depth = depths[static_cast<size_t>(wait.event())];
        depth = std::max(depth, wait.back() + 1);
      }
    }
  }
  return depths;
}

}  // namespace foreshard
