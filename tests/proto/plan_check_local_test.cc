// The copies that a group of one rank makes where others gather and reduce, each rule broken by a
// minimal change of the hand-written plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

TEST(LocalPlan, IsAccepted) {
  const Status status = CheckPlan(LocalPlan());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(LocalPlan, ShardsOfTheComputeDtypeNeedNoCast) {
  pb::Plan plan = LocalPlan();
  plan.mutable_decisions()->set_original_dtype(pb::BF16);
  plan.mutable_buffers(0)->set_bytes(12);
  plan.mutable_buffers(1)->set_bytes(4);
  pb::Segment& step = *plan.mutable_segments(0);
  step.mutable_ops(1)->set_in(0, 0);
  step.mutable_ops(3)->set_in(0, 1);
  step.mutable_ops(3)->clear_frees();
  step.mutable_ops(10)->set_waits(0, 7);
  step.mutable_ops()->DeleteSubrange(2, 1);
  step.mutable_ops()->DeleteSubrange(0, 1);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(LocalPlan, OneParameterIsTheWholeUnitForAGatherToo) {
  pb::Plan plan = LocalPlan();
  plan.mutable_units(0)->mutable_parameters()->RemoveLast();
  plan.mutable_units(0)->set_numel(6);
  plan.mutable_units(0)->set_padded_shard_numel(6);
  plan.mutable_units(0)->set_gathered_numel(6);
  plan.mutable_parameters()->RemoveLast();
  plan.mutable_buffers(5)->set_category(pb::AG_OUTPUT);
  plan.mutable_buffers(5)->set_bytes(12);
  pb::Group& group = *plan.add_groups();
  group.set_size(1);
  group.set_stride(1);
  pb::Segment& step = *plan.mutable_segments(0);
  // Ops 1 to 3 become copy-in, all-gather and copy-out through buffer 5.
  pb::Op* op = step.mutable_ops(1);
  op->set_allocs(0, 5);
  op->set_out(0, 5);
  op->mutable_gather_copy_in()->set_elems(6);
  op->mutable_gather_copy_in()->set_dtype(pb::BF16);
  op = step.mutable_ops(2);
  op->clear_allocs();
  op->set_in(0, 5);
  op->set_out(0, 5);
  op->mutable_all_gather()->set_elems_in(6);
  op->mutable_all_gather()->set_elems_out(6);
  op->mutable_all_gather()->set_dtype(pb::BF16);
  op = step.mutable_ops(3);
  op->set_allocs(0, 3);
  op->set_in(0, 5);
  op->set_out(0, 3);
  op->clear_frees();
  op->mutable_copy_out()->set_elems(6);
  op->mutable_copy_out()->set_dtype(pb::BF16);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

class BrokenLocalPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenLocalPlan, IsRefusedByItsRule) { ExpectRefused(LocalPlan(), GetParam()); }

// The same parameters, cut in two; what ops 0 and 2 moved is of no interest any more.
void CutInTwo(pb::Plan& p) {
  p.mutable_mesh()->set_world_size(2);
  p.mutable_mesh()->set_shard_size(2);
  p.mutable_parameters(0)->set_padded_shard_numel(3);
  p.mutable_parameters(1)->set_padded_shard_numel(1);
  p.mutable_parameters(1)->set_shard_offset(3);
  p.mutable_buffers(0)->set_bytes(12);
  p.mutable_buffers(1)->set_bytes(4);
  p.mutable_units(0)->set_padded_shard_numel(4);
  p.mutable_units(0)->set_grad_padded_shard_numel(3);
  for (const int op : {0, 2}) Step(p, op)->mutable_stream_wait();
}

const Mutation kLocal[] = {
    {"GatherInALargerGroup", "gather", "op 1 (local_gather, <root>): is for groups of one rank",
     CutInTwo},
    {"ReduceInALargerGroup", "reduce", "op 10 (local_reduce, <root>): is for groups of one rank",
     [](pb::Plan& p) {
       CutInTwo(p);
       for (const int op : {1, 3}) Step(p, op)->mutable_stream_wait();
     }},
    {"GatherUnit", "unit", "op 1 (local_gather)", [](pb::Plan& p) { Step(p, 1)->clear_unit(); }},
    {"GatherOfNothing", "collective", "reads 0 and writes 1 buffers",
     [](pb::Plan& p) { Step(p, 1)->clear_in(); }},
    {"GatherSize", "collective", "buffer 2 has 12 bytes, the op moves 10",
     [](pb::Plan& p) { Step(p, 1)->mutable_local_gather()->set_elems(5); }},
    {"GatherResultSize", "collective", "buffer 3 has 14 bytes, the op moves 12",
     [](pb::Plan& p) { p.mutable_buffers(3)->set_bytes(14); }},
    {"GatherDType", "collective", "dtype 0",
     [](pb::Plan& p) { Step(p, 1)->mutable_local_gather()->clear_dtype(); }},
    {"GatherWithoutTheCast", "collective", "moves 12 elements, parameter \"a\" has 6",
     [](pb::Plan& p) {
       Step(p, 1)->set_in(0, 0);
       Step(p, 1)->mutable_local_gather()->set_elems(12);
       p.mutable_buffers(3)->set_bytes(24);
       p.mutable_kernels(0)->mutable_operands(0)->set_dtype(pb::FP32);
     }},
    {"GatherOfSomethingElse", "gather",
     "op 3 (local_gather, <root>): reads buffer 4, neither the shard of a parameter of its unit "
     "nor "
     "a cast of one",
     [](pb::Plan& p) {
       Step(p, 2)->mutable_compute()->set_kernel(0);
       Step(p, 2)->set_in(0, 3);
       p.mutable_buffers(4)->set_category(pb::TEMP);
       p.mutable_buffers(4)->set_bytes(12);
       Step(p, 3)->mutable_local_gather()->set_elems(6);
       p.mutable_buffers(5)->set_bytes(12);
     }},
    {"GatherCategory", "category", "writes buffer 3 of category AG_OUTPUT",
     [](pb::Plan& p) { p.mutable_buffers(3)->set_category(pb::AG_OUTPUT); }},
    {"CastOfAnotherOrder", "gather", "does not read its unit's shards",
     [](pb::Plan& p) {
       Step(p, 0)->add_in(1);
       Step(p, 0)->set_in(0, 1);
       Step(p, 0)->set_in(1, 0);
       Step(p, 0)->mutable_cast_shard()->set_elems(8);
       p.mutable_buffers(2)->set_bytes(16);
       Step(p, 1)->mutable_local_gather()->set_elems(8);
       p.mutable_buffers(3)->set_bytes(16);
     }},
    {"CastOfTheWholeUnit", "gather", "reads buffer 2, neither the shard",
     [](pb::Plan& p) {
       Step(p, 0)->add_in(1);
       Step(p, 0)->mutable_cast_shard()->set_elems(8);
       p.mutable_buffers(2)->set_bytes(16);
       Step(p, 1)->mutable_local_gather()->set_elems(8);
       p.mutable_buffers(3)->set_bytes(16);
     }},
    {"NeverReduced", "reduce", "unit \"<root>\" is gathered in micro-batch 0 but not reduced",
     [](pb::Plan& p) {
       Step(p, 11)->mutable_stream_wait();
       Step(p, 10)->mutable_stream_wait();
     }},
    {"ReducedTwice", "reduce", "op 11 (local_reduce, <root>): unit \"<root>\" is reduced twice",
     [](pb::Plan& p) {
       *Step(p, 11) = *Step(p, 10);
       Step(p, 11)->clear_allocs();
     }},
    {"ReduceSize", "collective", "op 10 (local_reduce, <root>): buffer 7 has 24 bytes",
     [](pb::Plan& p) { Step(p, 10)->mutable_local_reduce()->set_dtype(pb::BF16); }},
    {"ReduceOfAShard", "reduce", "op 10 (local_reduce, <root>): reads buffer 0",
     [](pb::Plan& p) { Step(p, 10)->set_in(0, 0); }},
    {"ReduceCategory", "category", "writes buffer 8 of category TEMP, expected RS_OUTPUT",
     [](pb::Plan& p) { p.mutable_buffers(8)->set_category(pb::TEMP); }},
    {"ReduceUnit", "unit", "op 10 (local_reduce)", [](pb::Plan& p) { Step(p, 10)->clear_unit(); }},
    {"ReadUnwritten", "gather", "which no gather of its unit has written last",
     [](pb::Plan& p) {
       Step(p, 1)->clear_kind();
       Step(p, 1)->mutable_compute()->set_kernel(0);
       p.mutable_buffers(3)->set_category(pb::UNSHARDED_GRAD);
       pb::Settle& settle = *Step(p, 1)->add_settles();
       settle.set_buffer(3);
       settle.set_category(pb::UNSHARDED_PARAM);
     }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenLocalPlan, ::testing::ValuesIn(kLocal), NameOf);

}  // namespace
}  // namespace foreshard
