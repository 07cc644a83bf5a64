// What the executor makes of a plan before it runs, and what it refuses to run.
#include "exec/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/plan.pb.h"
#include "tests/small_world/world.h"

namespace foreshard::exec {
namespace {

using testing::HasSubstr;

// Two blocks on three ranks: no dimension of it divides by three.
pb::Plan SmallPlan() {
  SmallCase c;
  c.blocks = 2;
  c.request.world_size = 3;
  c.request.seq = 4;
  return PlanOfCase(c).value();
}

template <typename Visit>
pb::Op& FirstOp(pb::Plan& plan, Visit is_it) {
  for (pb::Segment& segment : *plan.mutable_segments()) {
    for (pb::Op& op : *segment.mutable_ops()) {
      if (is_it(op)) return op;
    }
  }
  CHECK(false) << "no such op";
  return *plan.mutable_segments(0)->mutable_ops(0);
}

void ExpectRefused(const pb::Plan& plan, const std::vector<std::string>& parts) {
  const Status status = Prepare(plan, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidPlan);
  for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Prepare, SizesAreThoseOfThePlanWithoutReadingThem) {
  pb::Plan plan = SmallPlan();
  std::vector<std::vector<int64_t>> expected(3);
  for (const pb::Buffer& buffer : plan.buffers()) {
    for (int rank = 0; rank < 3; ++rank) {
      int64_t bytes = buffer.bytes();
      for (const pb::RankBytes& fewer : buffer.others()) {
        if (fewer.rank() == rank) bytes = fewer.bytes();
      }
      expected[rank].push_back(bytes);
    }
  }
  for (pb::Buffer& buffer : *plan.mutable_buffers()) {
    buffer.set_bytes(-1);
    buffer.clear_others();
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto prepared = Prepare(plan, rank);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    EXPECT_EQ(prepared->buffer_bytes, expected[rank]) << rank;
  }
  EXPECT_NE(expected[0], expected[2]);  // the last rank holds less
}

TEST(Prepare, AnOperandThatReachesOutOfItsBuffer) {
  pb::Plan plan = SmallPlan();
  pb::Op& op = FirstOp(plan, [&](const pb::Op& o) {
    return o.has_compute() && plan.kernels(o.compute().kernel()).name() == "mm";
  });
  op.clear_in_offsets();
  for (int i = 0; i < op.in_size(); ++i) op.add_in_offsets(1);
  ExpectRefused(plan, {"mm", "operand 0 reaches byte", "which holds"});
}

TEST(Prepare, ACollectiveOfAnotherSizeThanItsBuffers) {
  pb::Plan plan = SmallPlan();
  pb::Op& op = FirstOp(plan, [](const pb::Op& o) { return o.has_all_gather(); });
  op.mutable_all_gather()->set_elems_out(op.all_gather().elems_out() - 1);
  ExpectRefused(plan, {"all_gather", "fills buffer"});
}

TEST(Prepare, ACopyOfAnotherLength) {
  pb::Plan plan = SmallPlan();
  pb::Op& op = FirstOp(plan, [](const pb::Op& o) { return o.has_cast_shard(); });
  op.mutable_in()->RemoveLast();
  ExpectRefused(plan, {"cast_shard", "is to move"});
}

TEST(Prepare, ABufferThatNothingFills) {
  pb::Plan plan = SmallPlan();
  pb::Op& op = FirstOp(plan, [](const pb::Op& o) { return o.has_compute(); });
  const int buffer = plan.buffers_size();
  plan.add_buffers()->set_bytes(64);
  op.add_allocs(buffer);
  ExpectRefused(plan, {"allocates buffer", "no op says what it holds"});
}

TEST(Prepare, AGradientTooFew) {
  pb::Plan plan = SmallPlan();
  pb::Op& op = FirstOp(plan, [](const pb::Op& o) { return o.has_reduce_copy_in(); });
  op.mutable_in()->RemoveLast();
  ExpectRefused(plan, {"reduce_copy_in", "gradients of a unit"});
}

// The pieces of a copy-out cover every element of the gathered buffer and of the parameters once.
TEST(Prepare, CopyOutMovesEveryElementOnce) {
  const pb::Plan plan = SmallPlan();
  const auto prepared = Prepare(plan, 1);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  int seen = 0;
  for (const PreparedSegment& segment : prepared->segments) {
    for (const PreparedOp& op : segment.ops) {
      const auto* copy = std::get_if<CopyElements>(&op.work);
      if (copy == nullptr || op.in.size() != 1 || op.out.size() < 2) continue;
      int64_t moved = 0;
      for (const CopyPiece& piece : copy->pieces) {
        EXPECT_GE(piece.from, 0);
        moved += piece.numel * piece.runs;
      }
      EXPECT_EQ(moved * SizeOf(copy->to), prepared->buffer_bytes[op.in[0]]);
      ++seen;
    }
  }
  EXPECT_GT(seen, 3);
}

}  // namespace
}  // namespace foreshard::exec
