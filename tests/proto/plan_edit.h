// Edits of the hand-written plans that keep them whole.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "proto/io.h"
#include "proto/plan.pb.h"

namespace foreshard {

// Puts an op, written as text, before op `position` of a segment; waits for later ops move along.
inline pb::Op* Insert(pb::Segment& segment, int position, std::string_view text) {
  for (pb::Op& op : *segment.mutable_ops()) {
    for (auto* waits : {op.mutable_waits(), op.mutable_host_waits()}) {
      for (int32_t& wait : *waits) wait += wait >= position ? 1 : 0;
    }
  }
  pb::Op& op = *segment.add_ops();
  const Status parsed = ParseText(text, "op", op);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  for (int i = segment.ops_size() - 1; i > position; --i) {
    segment.mutable_ops()->SwapElements(i, i - 1);
  }
  return segment.mutable_ops(position);
}

// Puts it into the segment "step".
inline pb::Op* Insert(pb::Plan& plan, int position, std::string_view text) {
  return Insert(*plan.mutable_segments(0), position, text);
}

inline int AddBuffer(pb::Plan& plan, std::string_view text) {
  const Status parsed = ParseText(text, "buffer", *plan.add_buffers());
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return plan.buffers_size() - 1;
}

}  // namespace foreshard
