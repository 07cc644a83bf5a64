// Rule clip, and rule optimizer of what is kept in another dtype or in 8 bits.
#include "proto/oplib/optimizer_state.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

// Two gradients; the first of the new buffers is 21: a norm of each, both, their squares.
constexpr std::string_view kClip = R"pb(
  name: "clip"
  ops {
    stream: 0
    allocs: [ 21, 22, 23, 24 ]
    in: [ 10, 14 ]
    out: [ 21, 22, 23, 24 ]
    phase: CLIP
    clip_norms {}
  }
  ops {
    stream: 0
    in: 24
    out: 24
    phase: CLIP
    all_reduce { group: 0 elems: 2 dtype: FP32 reduction: SUM }
  }
  ops {
    stream: 0
    frees: [ 21, 22, 23, 24 ]
    in: [ 10, 14, 24 ]
    out: [ 10, 14 ]
    phase: CLIP
    clip_scale { max_norm: 1 }
  }
)pb";

constexpr int kFirst = 21;  // of the buffers above

pb::Plan ClippedPlan() {
  pb::Plan plan = SmallPlan();
  EXPECT_EQ(plan.buffers_size(), kFirst);
  for (const int64_t bytes : {4, 4, 8, 8}) {
    pb::Buffer& buffer = *plan.add_buffers();
    buffer.set_bytes(bytes);
    buffer.set_category(pb::TEMP);
    buffer.set_stream(0);
  }
  pb::Segment& clip = *plan.add_segments();
  const Status parsed = ParseText(kClip, "clip", clip);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  for (pb::Program& program : *plan.mutable_programs()) {
    pb::SegmentUse use;
    use.set_segment(3);
    use.set_repeat(1);
    *program.add_uses() = use;
    for (int i = program.uses_size() - 1; i > 1; --i)
      program.mutable_uses()->SwapElements(i, i - 1);
  }
  return plan;
}

pb::Op& Clip(pb::Plan& plan, int op) { return *plan.mutable_segments(3)->mutable_ops(op); }

TEST(PlanCheckClip, AcceptsAPlanThatClips) {
  const Status status = CheckPlan(ClippedPlan());
  EXPECT_TRUE(status.ok()) << status.message();
}

class BrokenClip : public ::testing::TestWithParam<Mutation> {};
TEST_P(BrokenClip, IsRefused) { ExpectRefused(ClippedPlan(), GetParam()); }

const Mutation kClipMutations[] = {
    {"NormsElsewhere", "clip", "is in OPTIMIZER, expected CLIP",
     [](pb::Plan& p) { Clip(p, 0).set_phase(pb::OPTIMIZER); }},
    {"ScaleElsewhere", "clip", "is in OPTIMIZER, expected CLIP",
     [](pb::Plan& p) { Clip(p, 2).set_phase(pb::OPTIMIZER); }},
    {"NormMissing", "clip", "writes 3 buffers, expected 4",
     [](pb::Plan& p) { Clip(p, 0).mutable_out()->RemoveLast(); }},
    {"NormSize", "collective", "buffer 21",
     [](pb::Plan& p) { p.mutable_buffers(kFirst)->set_bytes(8); }},
    {"NormCategory", "category", "writes buffer 22 of category OPTIMIZER_STATE, expected TEMP",
     [](pb::Plan& p) { p.mutable_buffers(22)->set_category(pb::OPTIMIZER_STATE); }},
    {"GradientForgotten", "clip", "does not read the gradient of unit \"<root>\"",
     [](pb::Plan& p) { Clip(p, 0).mutable_in()->RemoveLast(); }},
    {"NoGradient", "clip", "reads buffer 0, no reduced gradient",
     [](pb::Plan& p) {
       pb::Settle& settle = *Step(p, 16)->add_settles();
       settle.set_buffer(0);
       settle.set_category(pb::SHARDED_GRAD);
       Clip(p, 0).set_in(0, 0);
     }},
    {"Average", "collective", "the reduction of norms is not SUM",
     [](pb::Plan& p) { Clip(p, 1).mutable_all_reduce()->set_reduction(pb::ReduceScatter::AVG); }},
    {"NothingToReduce", "clip", "reduces buffer 10, which clip_norms has not written",
     [](pb::Plan& p) {
       Clip(p, 1).set_in(0, 10), Clip(p, 1).set_out(0, 10);
       Clip(p, 1).mutable_all_reduce()->set_elems(p.buffers(10).bytes() / 4);
     }},
    {"NotReduced", "clip", "reads buffer 23, no norms of all gradients",
     [](pb::Plan& p) { Clip(p, 2).set_in(2, 23); }},
    {"OtherGradient", "clip", "does not write the gradients that it reads",
     [](pb::Plan& p) { Clip(p, 2).mutable_out()->SwapElements(0, 1); }},
    {"NoNorm", "clip", "clips to 0, expected a finite norm above 0",
     [](pb::Plan& p) { Clip(p, 2).mutable_clip_scale()->clear_max_norm(); }},
};
INSTANTIATE_TEST_SUITE_P(Clip, BrokenClip, ::testing::ValuesIn(kClipMutations), NameOf);

// ---- state

pb::Op& Init(pb::Plan& p) { return *p.mutable_segments(1)->mutable_ops(0); }
pb::Op& Update(pb::Plan& p) { return *p.mutable_segments(2)->mutable_ops(0); }

// Moments of both parameters (4 and 2 elements) in bf16.
pb::Plan HalfMoments() {
  pb::Plan plan = SmallPlan();
  Init(plan).mutable_optimizer_init()->set_dtype(pb::BF16);
  Update(plan).mutable_optimizer_step()->set_dtype(pb::BF16);
  for (const int b : {16, 17, 19, 20}) {
    plan.mutable_buffers(b)->set_bytes(plan.buffers(b).bytes() / 2);
    for (pb::RankBytes& fewer : *plan.mutable_buffers(b)->mutable_others()) {
      fewer.set_bytes(fewer.bytes() / 2);
    }
  }
  return plan;
}

TEST(PlanCheckState, AcceptsMomentsOfAnotherDType) {
  const Status status = CheckPlan(HalfMoments());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PlanCheckState, RefusesMomentsOfAnotherDTypeThanSaid) {
  ExpectRefused(
      HalfMoments(),
      {"", "optimizer", "buffer 16 of parameter \"block.weight\" has 8 bytes, expected 16",
       [](pb::Plan& p) { Init(p).mutable_optimizer_init()->clear_dtype(); }});
}

// So few elements are kept as they are.
TEST(PlanCheckState, AcceptsEightBitsInALoopOnly) {
  pb::Plan plan = SmallPlan();
  Init(plan).mutable_optimizer_init()->set_kind(pb::ADAMW_8BIT);
  Update(plan).mutable_optimizer_step()->set_kind(pb::ADAMW_8BIT);
  Update(plan).mutable_optimizer_step()->set_impl(pb::LOOP);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
  ExpectRefused(plan, {"", "optimizer", "or its implementation is unknown", [](pb::Plan& p) {
                         Update(p).mutable_optimizer_step()->set_impl(pb::FUSED);
                       }});
}

TEST(PlanCheckState, EightBitsFrom4096ElementsInWholeBlocks) {
  EXPECT_FALSE(oplib::IsQuantized(pb::ADAMW_8BIT, 4096 - 256));
  EXPECT_FALSE(oplib::IsQuantized(pb::ADAMW_8BIT, 4096 + 1));
  EXPECT_FALSE(oplib::IsQuantized(pb::ADAMW, 4096));
  EXPECT_EQ(oplib::MomentBytes(pb::ADAMW_8BIT, 4096, 4), 4096 + 16 * 4 + 1024);
  EXPECT_EQ(oplib::MomentBytes(pb::ADAMW_8BIT, 4095, 2), 4095 * 2);
}

}  // namespace
}  // namespace foreshard
