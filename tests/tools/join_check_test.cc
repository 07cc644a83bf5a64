// Reports that do not belong together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/tools/join_fixture.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

void ExpectRefused(const pb::Report& a, const pb::Report& b, StatusCode code,
                   const std::vector<std::string>& parts) {
  const Status status = TryJoin(a, b).status();
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(JoinCheck, ReportsOfOtherPlansAreRefused) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  b.mutable_setup()->set_model("three");
  ExpectRefused(a, b, StatusCode::kInvalidArgument,
                {"different plans", "the model is two in a.pb and three in b.pb"});
  b = a;
  b.mutable_setup()->set_world_size(4);
  ExpectRefused(a, b, StatusCode::kInvalidArgument, {"the world size is 2 in a.pb and 4 in b.pb"});
  b = a;
  b.mutable_setup()->set_units(3);
  ExpectRefused(a, b, StatusCode::kInvalidArgument, {"the number of units"});
  b = a;
  b.mutable_setup()->set_rank(1);
  b.mutable_timeline()->set_rank(1);
  ExpectRefused(a, b, StatusCode::kInvalidArgument, {"different ranks", "0 in a.pb", "1 in b.pb"});
}

TEST(JoinCheck, OpsThatDoNotAlignAreRefusedByTheFirst) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  b.mutable_timeline()->mutable_ops()->DeleteSubrange(9, 1);  // the block's forward
  ExpectRefused(
      a, b, StatusCode::kInvalidArgument,
      {"op 9 of the timeline is compute block on stream compute, module block, unit block",
       "(program first, op 9 of segment step, repetition 0) in a.pb", "reshard"});
  b = a;
  b.mutable_timeline()->mutable_ops()->RemoveLast();
  ExpectRefused(a, b, StatusCode::kInvalidArgument, {"and missing in b.pb"});
  ExpectRefused(b, a, StatusCode::kInvalidArgument, {"is missing in a.pb"});
}

TEST(JoinCheck, EveryPartOfAnOpsIdentityIsCompared) {
  const pb::Report a = Predicted();
  const std::function<void(pb::TimelineOp&)> changes[] = {
      [](pb::TimelineOp& op) { op.set_program(1 - op.program()); },
      [](pb::TimelineOp& op) { op.set_segment(op.segment() + 1); },
      [](pb::TimelineOp& op) { op.set_repetition(1); },
      [](pb::TimelineOp& op) { op.set_op(op.op() + 1); },
      [](pb::TimelineOp& op) { op.set_kind("copy_out"); },
      [](pb::TimelineOp& op) { op.set_kernel("head"); },
      [](pb::TimelineOp& op) { op.set_stream(1); },
      [](pb::TimelineOp& op) { op.set_stream(-1); },
      [](pb::TimelineOp& op) { op.set_unit("<root>"); },
      [](pb::TimelineOp& op) { op.set_module(""); },
  };
  for (const auto& change : changes) {
    pb::Report b = a;
    change(*b.mutable_timeline()->mutable_ops(9));
    ExpectRefused(a, b, StatusCode::kInvalidArgument, {"op 9 of the timeline"});
  }
}

TEST(JoinCheck, NothingToJoinIsNoSuccess) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  b.clear_timeline();
  ExpectRefused(a, b, StatusCode::kInvalidInput, {"b.pb: the report lists no ops", "-o FILE"});
  ExpectRefused(b, b, StatusCode::kInvalidInput, {"a.pb: the report lists no ops"});
  b = a;
  b.clear_phases();
  ExpectRefused(b, b, StatusCode::kInvalidInput, {"no memory of phases"});
  b = a;
  b.mutable_timeline()->set_rank(1);
  ExpectRefused(a, b, StatusCode::kInvalidInput, {"of rank 0 and its ops of rank 1"});
}

TEST(JoinCheck, ARunOfOneStepHasNoSteadyOne) {
  const pb::Report a = Predicted();
  pb::Report b = a;
  auto& ops = *b.mutable_timeline()->mutable_ops();
  while (ops[ops.size() - 1].program() == 1) ops.RemoveLast();
  ExpectRefused(a, b, StatusCode::kInvalidArgument,
                {"b.pb: no op of program steady, which a.pb lists", "--steps 2"});
  ExpectRefused(b, a, StatusCode::kInvalidArgument,
                {"a.pb: no op of program steady, which b.pb lists"});
}

}  // namespace
}  // namespace foreshard
