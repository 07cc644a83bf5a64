// A plan whose shards, gradients and optimizer state live on the host, and micro-batches that
// segments repeat. Each rule is broken by a minimal change of the hand-written plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/plan_edit.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

void ExpectAccepted(const pb::Plan& plan) {
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

// Buffers 24 and 25 are the gradients on the host, where stream 4 updates.
void UpdateOnTheHost(pb::Plan& plan) {
  for (const int b : {0, 1, 2, 15, 16, 17, 18, 19, 20}) {
    plan.mutable_buffers(b)->set_host(true);
    plan.mutable_buffers(b)->set_stream(4);
  }
  plan.mutable_segments(1)->mutable_ops(0)->set_stream(4);
  pb::Segment& update = *plan.mutable_segments(2);
  Insert(update, 0, R"pb(stream: 4
                         phase: OPTIMIZER
                         stream_wait { on: 3 })pb");
  pb::Op& step = *update.mutable_ops(1);
  step.set_stream(4);
  step.set_in(0, 24);
  step.set_in(1, 25);
  update.mutable_ops(2)->set_frees(0, 24);
  update.mutable_ops(2)->set_frees(1, 25);
  update.mutable_ops(3)->mutable_stream_wait()->add_on(4);
}

// The block's shard is copied by op 0, the root's by ops 6 and 7; gradients go back in ops 16
// and 19.
pb::Plan HostPlan() {
  pb::Plan plan = SmallPlan();
  plan.add_streams()->set_role(pb::Stream::HOST);
  AddBuffer(plan, "bytes: 16 category: CAST stream: 1 unit: 1");                     // 21
  AddBuffer(plan, "bytes: 8 category: CAST stream: 1 unit: 0");                      // 22
  AddBuffer(plan, "bytes: 4 category: CAST stream: 1 unit: 0");                      // 23
  AddBuffer(plan, "bytes: 16 category: SHARDED_GRAD stream: 3 unit: 1 host: true");  // 24
  AddBuffer(plan, "bytes: 8 category: SHARDED_GRAD stream: 3 unit: 0 host: true");   // 25
  Insert(plan, 0, R"pb(stream: 1
                       allocs: 21
                       in: 0
                       out: 21
                       unit: 1
                       phase: FORWARD
                       copy_to_device { elems: 4 dtype: FP32 })pb");
  Step(plan, 1)->set_in(0, 21);
  Step(plan, 1)->add_frees(21);
  Insert(plan, 6, R"pb(stream: 1
                       waits: 4
                       allocs: 22
                       in: 1
                       out: 22
                       unit: 0
                       phase: FORWARD
                       copy_to_device { elems: 2 dtype: FP32 })pb");
  Insert(plan, 7, R"pb(stream: 1
                       allocs: 23
                       in: 2
                       out: 23
                       unit: 0
                       phase: FORWARD
                       copy_to_device { elems: 1 dtype: FP32 })pb");
  pb::Op* copy = Step(plan, 8);
  copy->set_in(0, 22);
  copy->set_in(1, 23);
  copy->add_frees(22);
  copy->add_frees(23);
  Insert(plan, 16, R"pb(stream: 3
                        allocs: 24
                        in: 10
                        out: 24
                        frees: 10
                        unit: 1
                        phase: BACKWARD
                        copy_to_host { elems: 4 dtype: FP32 parameter: 0 })pb");
  Insert(plan, 19, R"pb(stream: 3
                        allocs: 25
                        in: 14
                        out: 25
                        frees: 14
                        unit: 0
                        phase: BACKWARD
                        copy_to_host { elems: 2 dtype: FP32 parameter: 1 })pb");
  UpdateOnTheHost(plan);
  return plan;
}

TEST(HostPlan, IsAccepted) { ExpectAccepted(HostPlan()); }

pb::Op* Update(pb::Plan& plan) { return plan.mutable_segments(2)->mutable_ops(1); }

TEST(HostPlan, MayAddUpGradientsOnTheHost) {
  pb::Plan plan = HostPlan();
  AddBuffer(plan, "bytes: 16 category: SHARDED_GRAD stream: 3 unit: 1 host: true");  // 26
  Step(plan, 16)->clear_frees();
  Insert(plan, 17, R"pb(stream: 3
                        allocs: 26
                        in: 10
                        out: 26
                        frees: 10
                        unit: 1
                        phase: BACKWARD
                        copy_to_host { elems: 4 dtype: FP32 parameter: 0 })pb");
  pb::Segment& update = *plan.mutable_segments(2);
  Insert(update, 1, R"pb(stream: 4
                         in: [ 26, 24 ]
                         out: 24
                         unit: 1
                         phase: BACKWARD
                         grad_finalize { from: FP32 to: FP32 accumulate: true })pb");
  update.mutable_ops(3)->add_frees(26);
  ExpectAccepted(plan);
}

class BrokenHostPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenHostPlan, IsRefusedByItsRule) { ExpectRefused(HostPlan(), GetParam()); }

const Mutation kHost[] = {
    {"DeviceReadsTheHost", "host", "op 1 (cast_shard, block): reads buffer 0, which is on the host",
     [](pb::Plan& p) { Step(p, 1)->set_in(0, 0); }},
    {"DeviceWritesTheHost", "host", "writes buffer 4, which is on the host",
     [](pb::Plan& p) { p.mutable_buffers(4)->set_host(true); }},
    {"CopyFromTheDevice", "host",
     "op 0 (copy_to_device, block): reads buffer 0, which is not on the "
     "host",
     [](pb::Plan& p) { p.mutable_buffers(0)->set_host(false); }},
    {"CopyToTheDevice", "host",
     "op 16 (copy_to_host, block): writes buffer 24, which is not on the host",
     [](pb::Plan& p) { p.mutable_buffers(24)->set_host(false); }},
    {"HostReadsTheDevice", "host",
     "op 1 (optimizer_step): reads buffer 10, which is not on the host",
     [](pb::Plan& p) { Update(p)->set_in(0, 10); }},
    {"HostCopies", "host", "moves to or from the device on a host's stream",
     [](pb::Plan& p) { Step(p, 16)->set_stream(4); }},
    {"HostScratch", "host", "has buffer 26 as scratch, which is not on the host",
     [](pb::Plan& p) {
       AddBuffer(p, "bytes: 4 category: TEMP");
       Update(p)->add_allocs(26);
       Update(p)->add_frees(26);
     }},
    {"DeviceScratch", "host", "has buffer 26 as scratch, which is on the host",
     [](pb::Plan& p) {
       AddBuffer(p, "bytes: 4 category: TEMP host: true");
       Step(p, 5)->add_allocs(26);
       Step(p, 5)->add_frees(26);
     }},
    {"CopyOfNoShard", "gather", "reads buffer 1, no shard of a parameter of its unit",
     [](pb::Plan& p) { Step(p, 6)->set_unit(1); }},
    {"CopyCategory", "category", "writes buffer 21 of category TEMP, expected CAST",
     [](pb::Plan& p) { p.mutable_buffers(21)->set_category(pb::TEMP); }},
    {"CopySize", "collective", "buffer 0 has 16 bytes, the op moves 12",
     [](pb::Plan& p) { Step(p, 0)->mutable_copy_to_device()->set_elems(3); }},
    {"OtherOrder", "gather", "does not read its unit's shards, one a parameter in layout order",
     [](pb::Plan& p) { Step(p, 8)->mutable_in()->SwapElements(0, 1); }},
    {"GradientParameter", "index", "parameter 3 of 3",
     [](pb::Plan& p) { Step(p, 16)->mutable_copy_to_host()->set_parameter(3); }},
    {"GradientOfAnotherUnit", "unit", "parameter \"weight\" belongs to another unit",
     [](pb::Plan& p) { Step(p, 16)->mutable_copy_to_host()->set_parameter(1); }},
    {"GradientSize", "collective",
     "moves 3 elements, the shard of parameter \"block.weight\" has 4",
     [](pb::Plan& p) { Step(p, 16)->mutable_copy_to_host()->set_elems(3); }},
    {"GradientPlace", "view", "element 1 of buffer 10 is not where",
     [](pb::Plan& p) { Step(p, 16)->add_in_offsets(1); }},
    {"NotReduced", "reduce", "reads buffer 9, not the gradient of its unit",
     [](pb::Plan& p) { Step(p, 16)->set_in(0, 9); }},
    {"GradientMissing", "optimizer", "does not read the gradient of unit \"<root>\"",
     [](pb::Plan& p) { Update(p)->mutable_in()->RemoveLast(); }},
    {"GradientTwice", "optimizer", "reads a second gradient of unit \"block\"",
     [](pb::Plan& p) { Update(p)->add_in(24); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenHostPlan, ::testing::ValuesIn(kHost), NameOf);

// ---- micro-batches

void RepeatAll(pb::Plan& plan, int repeat) {
  for (pb::Program& program : *plan.mutable_programs()) {
    program.mutable_uses(0)->set_repeat(repeat);
  }
}

// After two micro-batches of the segment "step", a segment of its own for another one.
pb::Plan ThreeMicroBatches(int last) {
  pb::Plan plan = LocalPlan();
  RepeatAll(plan, 2);
  pb::Segment& segment = *plan.add_segments();
  segment = plan.segments(0);
  for (pb::Op& op : *segment.mutable_ops()) op.set_micro_batch(last);
  for (pb::Program& program : *plan.mutable_programs()) {
    pb::SegmentUse& use = *program.add_uses();
    use.set_segment(1);
    use.set_repeat(1);
  }
  return plan;
}

TEST(MicroBatches, EachRepetitionIsTheNextOne) { ExpectAccepted(ThreeMicroBatches(2)); }

TEST(MicroBatches, ARepetitionIsTheMicroBatchOfNoOtherSegment) {
  const auto dropped = [](pb::Plan& p) {
    for (pb::Segment& segment : *p.mutable_segments()) segment.mutable_ops()->DeleteSubrange(6, 1);
    for (pb::Segment& segment : *p.mutable_segments()) segment.mutable_ops(9)->set_waits(0, 8);
  };
  const auto no_loss = [&](pb::Plan& p) {
    dropped(p);
    p.clear_losses();
  };
  ExpectRefused(ThreeMicroBatches(1),
                {"", "random", "numbers 7, which an op before it has drawn", [](pb::Plan&) {}});
  ExpectRefused(ThreeMicroBatches(1),
                {"", "loss", "micro-batch 1 writes its loss 2 times", dropped});
  ExpectRefused(ThreeMicroBatches(1),
                {"", "reduce", "unit \"<root>\" is reduced twice in micro-batch 1", no_loss});
}

// Only three repetitions make the fifth micro-batch another segment's.
TEST(MicroBatches, AllRepetitionsCount) {
  pb::Plan plan = ThreeMicroBatches(4);
  plan.clear_losses();
  for (pb::Segment& segment : *plan.mutable_segments()) {
    segment.mutable_ops()->DeleteSubrange(6, 1);
    segment.mutable_ops(9)->set_waits(0, 8);
  }
  RepeatAll(plan, 4);
  ExpectAccepted(plan);
  RepeatAll(plan, 5);
  ExpectRefused(plan, {"", "reduce", "reduced twice in micro-batch 4", [](pb::Plan&) {}});
}

// A gradient that was written twice: by op 7, and in place by op 8. What follows is another
// segment.
pb::Plan WrittenTwice() {
  pb::Plan plan = LocalPlan();
  Insert(plan, 8, R"pb(stream: 0
                       in: 6
                       out: 6
                       module: 0
                       phase: BACKWARD
                       compute { kernel: 0 })pb");
  pb::Segment& rest = *plan.add_segments();
  for (int i = 10; i < plan.segments(0).ops_size(); ++i) *rest.add_ops() = plan.segments(0).ops(i);
  plan.mutable_segments(0)->mutable_ops()->DeleteSubrange(10, rest.ops_size());
  rest.mutable_ops(1)->set_waits(0, 0);
  for (pb::Program& program : *plan.mutable_programs()) {
    pb::SegmentUse& use = *program.add_uses();
    use.set_segment(1);
    use.set_repeat(1);
  }
  return plan;
}

TEST(Versions, WhatASegmentFindsWrittenCountsAsWrittenOnce) {
  ExpectAccepted(WrittenTwice());
  ExpectRefused(WrittenTwice(),
                {"", "version", "reads version 2 of buffer 6, which has been written 1 times",
                 [](pb::Plan& p) { p.mutable_segments(1)->mutable_ops(0)->add_in_versions(2); }});
}

}  // namespace
}  // namespace foreshard
