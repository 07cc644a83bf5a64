// Gathers from other places than a rank's shards along rows: from what was kept after forward, from
// columns, from the host. Each rule is broken by a minimal change of the hand-written plan.
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

// The block is kept by one rank: op 5 keeps its parameter, 6 frees it, 7 to 9 gather it again into
// the same buffer for backward.
pb::Plan KeptPlan() {
  pb::Plan plan = SmallPlan();
  pb::Group& group = *plan.add_groups();
  group.set_size(1);
  group.set_stride(1);
  plan.mutable_units(1)->set_reshard_to(1);
  AddBuffer(plan, "bytes: 16 category: POST_FORWARD_SHARD unit: 1");   // 21
  AddBuffer(plan, "bytes: 16 category: AG_OUTPUT stream: 1 unit: 1");  // 22
  Insert(plan, 5, R"pb(stream: 0
                       allocs: 21
                       in: 6
                       out: 21
                       unit: 1
                       phase: FORWARD
                       keep_slice { group: 1 elems: 8 dtype: BF16 })pb");
  Insert(plan, 6, R"pb(frees: 6
                       unit: 1
                       phase: FORWARD
                       reshard {})pb");
  Insert(plan, 7, R"pb(stream: 1
                       waits: [ 3, 5 ]
                       allocs: 22
                       in: 21
                       out: 22
                       frees: 21
                       unit: 1
                       phase: BACKWARD
                       gather_copy_in { elems: 8 dtype: BF16 })pb");
  Insert(plan, 8, R"pb(stream: 2
                       waits: 7
                       in: 22
                       out: 22
                       unit: 1
                       phase: BACKWARD
                       all_gather {
                         group: 1
                         elems_in: 8
                         elems_out: 8
                         dtype: BF16
                         reason: PREFETCH_BACKWARD_EXPLICIT
                       })pb");
  Insert(plan, 9, R"pb(stream: 0
                       waits: 8
                       allocs: 6
                       in: 22
                       out: 6
                       frees: 22
                       unit: 1
                       phase: BACKWARD
                       copy_out { elems: 8 dtype: BF16 })pb");
  Step(plan, 10)->add_waits(9);
  return plan;
}

TEST(KeptPlan, IsAccepted) { ExpectAccepted(KeptPlan()); }

// As the library does, although what was kept has the dtype already.
TEST(KeptPlan, MayBeCopiedAsACast) {
  pb::Plan plan = KeptPlan();
  AddBuffer(plan, "bytes: 16 category: CAST stream: 1 unit: 1");  // 23
  pb::Op* cast = Insert(plan, 7, R"pb(stream: 1
                                      waits: [ 3, 5 ]
                                      allocs: 23
                                      in: 21
                                      out: 23
                                      frees: 21
                                      unit: 1
                                      phase: BACKWARD
                                      cast_shard { elems: 8 from: BF16 to: BF16 })pb");
  ASSERT_EQ(cast->in(0), 21);
  Step(plan, 8)->set_in(0, 23);
  Step(plan, 8)->set_frees(0, 23);
  ExpectAccepted(plan);
}

class BrokenKeptPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenKeptPlan, IsRefusedByItsRule) { ExpectRefused(KeptPlan(), GetParam()); }

const Mutation kKept[] = {
    {"ReshardTo", "layout", "reshard_to 3 does not divide the 2 ranks",
     [](pb::Plan& p) { p.mutable_units(1)->set_reshard_to(3); }},
    {"ReshardToNegative", "layout", "reshard_to -1",
     [](pb::Plan& p) { p.mutable_units(1)->set_reshard_to(-1); }},
    {"Group", "index", "group 2 of 2",
     [](pb::Plan& p) { Step(p, 5)->mutable_keep_slice()->set_group(2); }},
    {"OtherGroup", "gather", "is over 1 ranks with stride 1, expected the 2 neighbours",
     [](pb::Plan& p) { p.mutable_units(1)->set_reshard_to(2); }},
    {"Size", "collective", "its buffers written have 16 bytes, the op moves 14",
     [](pb::Plan& p) { Step(p, 5)->mutable_keep_slice()->set_elems(7); }},
    {"PartSize", "collective", "buffer 6 has 16 bytes, the op moves 14",
     [](pb::Plan& p) {
       p.mutable_buffers(21)->set_bytes(14);
       Step(p, 5)->mutable_keep_slice()->set_elems(7);
     }},
    {"OnePartForEach", "collective", "expected one for each",
     [](pb::Plan& p) { Step(p, 5)->clear_out(); }},
    {"Category", "category", "writes buffer 21 of category TEMP, expected POST_FORWARD_SHARD",
     [](pb::Plan& p) { p.mutable_buffers(21)->set_category(pb::TEMP); }},
    {"KeepsSomethingElse", "category", "reads buffer 5 of category AG_OUTPUT",
     [](pb::Plan& p) {
       Step(p, 3)->clear_frees();
       Step(p, 5)->set_in(0, 5);
       Step(p, 5)->add_frees(5);
     }},
    {"KeepsAnotherUnit", "gather", "is over 1 ranks with stride 1, expected the 0 neighbours",
     [](pb::Plan& p) { Step(p, 5)->set_unit(0); }},
    {"GatheredFromAll", "gather", "is over 2 ranks with stride 1, expected the 1 neighbours",
     [](pb::Plan& p) {
       Step(p, 8)->mutable_all_gather()->set_group(0);
       Step(p, 8)->mutable_all_gather()->set_elems_in(4);
     }},
    {"ReadAfterReshard", "lifetime", "reads buffer 6, which is not alive",
     [](pb::Plan& p) { Step(p, 4)->mutable_frees()->Swap(Step(p, 6)->mutable_frees()); }},
    {"AliveTwice", "lifetime", "allocates buffer 6, which is alive already",
     [](pb::Plan& p) { Step(p, 6)->clear_frees(); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenKeptPlan, ::testing::ValuesIn(kKept), NameOf);

// The block's weight is cut along its columns: op 4 joins them, op 12 splits the gradient.
pb::Plan ColumnPlan() {
  pb::Plan plan = SmallPlan();
  pb::Parameter& weight = *plan.mutable_parameters(0);
  weight.set_shard_dim(1);
  weight.set_padded_shard_numel(3);
  pb::Unit& unit = *plan.mutable_units(1);
  unit.set_padded_shard_numel(3);
  unit.set_grad_padded_shard_numel(3);
  unit.set_gathered_numel(6);
  plan.mutable_buffers(0)->clear_others();
  for (const auto& [buffer, bytes] :
       {std::pair(0, 12), {4, 6}, {5, 12}, {6, 12}, {9, 24}, {10, 12}, {16, 12}, {17, 12}}) {
    plan.mutable_buffers(buffer)->set_bytes(bytes);
  }
  AddBuffer(plan, "bytes: 12 category: TEMP unit: 1");            // 21
  AddBuffer(plan, "bytes: 12 category: UNSHARDED_GRAD unit: 1");  // 22
  Step(plan, 0)->mutable_cast_shard()->set_elems(3);
  Step(plan, 1)->mutable_gather_copy_in()->set_elems(3);
  Step(plan, 2)->mutable_all_gather()->set_elems_in(3);
  Step(plan, 2)->mutable_all_gather()->set_elems_out(6);
  pb::Op* copy = Step(plan, 3);
  copy->set_allocs(0, 21);
  copy->set_out(0, 21);
  copy->mutable_copy_out()->set_elems(6);
  Step(plan, 4)->set_in_offsets(0, 2);
  Step(plan, 10)->mutable_reduce_copy_in()->set_elems_out(6);
  Step(plan, 10)->set_in(0, 22);
  Step(plan, 10)->set_frees(0, 22);
  Step(plan, 11)->mutable_reduce_scatter()->set_elems_in(6);
  Step(plan, 11)->mutable_reduce_scatter()->set_elems_out(3);
  plan.mutable_segments(2)->mutable_ops(0)->mutable_optimizer_step()->set_elems(5);
  Insert(plan, 4, R"pb(stream: 0
                       allocs: 6
                       in: 21
                       out: 6
                       frees: 21
                       unit: 1
                       phase: FORWARD
                       join_shards { elems: 6 dtype: BF16 })pb");
  Insert(plan, 11, R"pb(stream: 0
                        allocs: 22
                        in: 8
                        out: 22
                        frees: 8
                        unit: 1
                        phase: BACKWARD
                        split_gradient { elems: 6 dtype: BF16 parameter: 0 })pb");
  Step(plan, 12)->set_waits(0, 11);
  return plan;
}

TEST(ColumnPlan, IsAccepted) { ExpectAccepted(ColumnPlan()); }

class BrokenColumnPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenColumnPlan, IsRefusedByItsRule) { ExpectRefused(ColumnPlan(), GetParam()); }

const Mutation kColumns[] = {
    {"Uneven", "layout", "along dimension 1",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_shape(1, 3); }},
    {"Dimension", "layout", "along dimension 2",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_shard_dim(2); }},
    {"NegativeDimension", "layout", "along dimension -1",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_shard_dim(-1); }},
    {"CopiedOutAsAParameter", "category",
     "writes buffer 21 of category UNSHARDED_PARAM, expected TEMP",
     [](pb::Plan& p) { p.mutable_buffers(21)->set_category(pb::UNSHARDED_PARAM); }},
    {"JoinedAsATemporary", "category", "writes buffer 6 of category TEMP",
     [](pb::Plan& p) { p.mutable_buffers(6)->set_category(pb::TEMP); }},
    {"JoinSize", "collective", "the op moves 10",
     [](pb::Plan& p) { Step(p, 4)->mutable_join_shards()->set_elems(5); }},
    {"JoinsAnotherUnit", "gather", "reads 1 buffers, 0 parameters of its unit are to be joined",
     [](pb::Plan& p) { Step(p, 4)->set_unit(0); }},
    {"JoinsNothingCopiedOut", "gather",
     "does not read parameter \"block.weight\" as it was copied out",
     [](pb::Plan& p) {
       Step(p, 3)->clear_frees();
       Step(p, 3)->add_frees(21);
       Step(p, 4)->set_in(0, 5);
       Step(p, 4)->set_frees(0, 5);
     }},
    {"SplitParameter", "index", "parameter 3 of 3",
     [](pb::Plan& p) { Step(p, 11)->mutable_split_gradient()->set_parameter(3); }},
    {"SplitsAnotherUnitsParameter", "unit", "parameter \"weight\" belongs to another unit",
     [](pb::Plan& p) { Step(p, 11)->mutable_split_gradient()->set_parameter(1); }},
    {"SplitsRows", "reduce", "is sharded along its rows",
     [](pb::Plan& p) {
       Step(p, 11)->set_unit(0);
       Step(p, 11)->mutable_split_gradient()->set_parameter(1);
     }},
    {"SplitSize", "collective", "moves 5 elements, not those of parameter \"block.weight\"",
     [](pb::Plan& p) { Step(p, 11)->mutable_split_gradient()->set_elems(5); }},
    {"SplitsSomethingElse", "category", "reads buffer 6 of category UNSHARDED_PARAM",
     [](pb::Plan& p) {
       Step(p, 11)->set_in(0, 6);
       Step(p, 9)->clear_frees();
       Step(p, 11)->add_frees(6);
     }},
    {"NotSplit", "reduce", "reads buffer 8, whose parameter is not sharded along its rows",
     [](pb::Plan& p) {
       Step(p, 11)->clear_frees();
       Step(p, 12)->set_in(0, 8);
       Step(p, 12)->add_frees(8);
     }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenColumnPlan, ::testing::ValuesIn(kColumns), NameOf);

// Forward runs again before the block's backward: op 7.
pb::Plan RecomputedPlan() {
  pb::Plan plan = SmallPlan();
  AddBuffer(plan, "bytes: 8 category: RECOMPUTE module: 1");  // 21
  Insert(plan, 7, R"pb(stream: 0
                       allocs: 21
                       in: 6
                       in_offsets: 4
                       out: 21
                       frees: 21
                       unit: 1
                       module: 1
                       phase: BACKWARD
                       compute { kernel: 0 recompute: true })pb");
  return plan;
}

TEST(RecomputedPlan, IsAccepted) { ExpectAccepted(RecomputedPlan()); }

class BrokenRecomputedPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenRecomputedPlan, IsRefusedByItsRule) { ExpectRefused(RecomputedPlan(), GetParam()); }

const Mutation kRecomputed[] = {
    {"InForward", "recompute", "runs again in FORWARD, expected BACKWARD",
     [](pb::Plan& p) { Step(p, 7)->set_phase(pb::FORWARD); }},
    {"Category", "category", "writes buffer 21 of category TEMP, expected RECOMPUTE",
     [](pb::Plan& p) { p.mutable_buffers(21)->set_category(pb::TEMP); }},
    {"OtherKernelsDoNot", "category", "writes buffer 21 of category RECOMPUTE, expected TEMP",
     [](pb::Plan& p) { Step(p, 7)->mutable_compute()->set_recompute(false); }},
};
INSTANTIATE_TEST_SUITE_P(Rules, BrokenRecomputedPlan, ::testing::ValuesIn(kRecomputed), NameOf);

}  // namespace
}  // namespace foreshard
