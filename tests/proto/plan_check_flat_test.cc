// Rules of units with a flat parameter, each broken by a minimal change of a hand-written plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/io.h"
#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/flat_plan.h"
#include "tests/proto/plan_edit.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

pb::Plan FlatPlan() {
  pb::Plan plan;
  const Status parsed = ParseText(kFlatPlan, "flat_plan.h", plan);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return plan;
}

void ExpectAccepted(const pb::Plan& plan) {
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

pb::Op* Init(pb::Plan& plan) { return plan.mutable_segments(1)->mutable_ops(0); }
pb::Op* Update(pb::Plan& plan, int op) { return plan.mutable_segments(2)->mutable_ops(op); }
pb::Flat* Flat(pb::Plan& plan, int unit) { return plan.mutable_units(unit)->mutable_flat(); }

// The same on two pairs of ranks. What is reduced is not reduced over both pairs.
void Replicate(pb::Plan& plan) {
  plan.mutable_mesh()->set_world_size(4);
  plan.mutable_mesh()->set_replicate_size(2);
  pb::Group& replicas = *plan.add_groups();
  replicas.set_size(2);
  replicas.set_stride(2);
}

TEST(FlatPlan, IsAccepted) { ExpectAccepted(FlatPlan()); }

class BrokenFlatPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenFlatPlan, IsRefusedByItsRule) { ExpectRefused(FlatPlan(), GetParam()); }

const Mutation kLayout[] = {
    {"Buffer", "index", "flat buffer 25 of 25",
     [](pb::Plan& p) { Flat(p, 0)->set_sharded_buffer(25); }},
    {"Empty", "layout", "unit \"<root>\": its flat parameter has 0 elements",
     [](pb::Plan& p) { Flat(p, 0)->set_numel(0); }},
    {"OtherBuffer", "layout", "\"bias\": buffer 1 is not that of its unit's flat parameter, 0",
     [](pb::Plan& p) { p.mutable_parameters(3)->set_sharded_buffer(1); }},
    {"ShardOfItsOwn", "layout", "\"bias\": has a shard of its own, its unit a flat parameter",
     [](pb::Plan& p) { p.mutable_parameters(3)->set_padded_shard_numel(1); }},
    {"Overlap", "layout", "\"bias\": flat_offset 3 is before element 4",
     [](pb::Plan& p) { p.mutable_parameters(3)->set_flat_offset(3); }},
    {"NegativeOffset", "layout", "\"weight\": flat_offset -1 is before element 0",
     [](pb::Plan& p) { p.mutable_parameters(2)->set_flat_offset(-1); }},
    {"BeyondTheEnd", "layout", "\"bias\": flat_offset 6 is before element 4, where the parameter",
     [](pb::Plan& p) { p.mutable_parameters(3)->set_flat_offset(6); }},
    {"OutOfOrder", "layout", "\"weight\": flat_offset 0 is before element 5",
     [](pb::Plan& p) { p.mutable_units(0)->mutable_parameters()->SwapElements(0, 1); }},
    {"Numel", "layout", "numel 6, expected 5",
     [](pb::Plan& p) { p.mutable_units(0)->set_numel(6); }},
    {"Frozen", "layout", "frozen 1, expected 0", [](pb::Plan& p) { Flat(p, 0)->set_frozen(true); }},
    {"Shard", "layout", "padded_shard_numel 2, expected 3",
     [](pb::Plan& p) { p.mutable_units(0)->set_padded_shard_numel(2); }},
    {"GradientShard", "layout", "grad_padded_shard_numel 0, expected 3",
     [](pb::Plan& p) { p.mutable_units(0)->set_grad_padded_shard_numel(0); }},
    {"Gathered", "layout", "gathered_numel 5, expected 6",
     [](pb::Plan& p) { p.mutable_units(1)->set_gathered_numel(5); }},
    {"ReshardedToFewer", "layout", "reshard_to 1, expected 0",
     [](pb::Plan& p) { p.mutable_units(0)->set_reshard_to(1); }},
    {"ShardBytes", "layout", "3 elements does not fill the 8 bytes of buffer 0",
     [](pb::Plan& p) { p.mutable_buffers(0)->set_bytes(8); }},
    {"OffsetWithoutFlat", "layout", "\"weight\": has a shard of its own",
     [](pb::Plan& p) { p.mutable_parameters(2)->set_shard_offset(1); }},
    {"BetweenParameters", "view", "elements 5 to 6 of buffer 6 are no part of one parameter",
     [](pb::Plan& p) { Step(p, 18)->set_in_offsets(0, 5); }},
    {"AcrossParameters", "view", "elements 1 to 5 of buffer 6 are no part of one parameter",
     [](pb::Plan& p) { Step(p, 6)->add_in_offsets(1); }},
    {"OtherDType", "view", "elements 0 to 1 of buffer 6 are no part of one parameter",
     [](pb::Plan& p) {
       p.mutable_kernels(1)->mutable_operands(0)->set_dtype(pb::FP32);
       p.mutable_kernels(1)->mutable_results(0)->set_dtype(pb::FP32);
       p.mutable_buffers(14)->set_bytes(4);
       Step(p, 18)->set_in_offsets(0, 0);
     }},
};
INSTANTIATE_TEST_SUITE_P(Layout, BrokenFlatPlan, ::testing::ValuesIn(kLayout), NameOf);

const Mutation kGather[] = {
    {"CastOfOther", "gather", "op 2 (cast_shard, block): does not read the shard of its unit alone",
     [](pb::Plan& p) { Step(p, 2)->set_in(0, 0); }},
    {"GatherOfOther", "gather", "op 5 (all_gather, <root>): reads buffer 4, neither the shard of",
     [](pb::Plan& p) {
       Step(p, 3)->clear_frees();
       Step(p, 5)->add_frees(4);
       Step(p, 5)->set_in(0, 4);
     }},
    {"NotGathered", "gather", "op 6 (compute relu, block): reads buffer 6, which no gather",
     [](pb::Plan& p) { *Step(p, 3)->mutable_stream_wait() = {}; }},
    {"OverReplicas", "gather", "moves 6 elements over 2 ranks with stride 2, expected the 6 of",
     [](pb::Plan& p) {
       Replicate(p);
       Step(p, 3)->mutable_all_gather()->set_group(1);
     }},
    {"WrittenAsOutput", "category", "writes buffer 6 of category AG_OUTPUT, expected UNSHARDED_P",
     [](pb::Plan& p) { p.mutable_buffers(6)->set_category(pb::AG_OUTPUT); }},
    {"CopiedIn", "gather", "op 2 (gather_copy_in, block): is not for units with a flat parameter",
     [](pb::Plan& p) {
       pb::GatherCopyIn& copy = *Step(p, 2)->mutable_gather_copy_in();
       copy.set_elems(3);
       copy.set_dtype(pb::FP32);
       p.mutable_buffers(4)->set_category(pb::AG_OUTPUT);
     }},
    {"CastRead", "gather", "op 18 (compute relu, block): reads buffer 4, which no gather",
     [](pb::Plan& p) {
       // Kernels read it only where nothing is sharded.
       Step(p, 10)->clear_frees();
       Step(p, 20)->add_frees(4);
       p.mutable_buffers(4)->clear_unit();
       Step(p, 18)->set_in(0, 4);
       Step(p, 18)->set_in_offsets(0, 0);
     }},
    {"ShardRead", "gather", "op 18 (compute relu, block): reads buffer 25, which no gather",
     [](pb::Plan& p) {
       AddBuffer(p, "bytes: 2 category: SHARDED_PARAM");
       p.add_resident(25);
       Step(p, 18)->set_in(0, 25);
       Step(p, 18)->set_in_offsets(0, 0);
     }},
};
INSTANTIATE_TEST_SUITE_P(Gather, BrokenFlatPlan, ::testing::ValuesIn(kGather), NameOf);

const Mutation kReduce[] = {
    {"JoinsTooMany", "collective", "joins 2 buffers for 3 parameters into 1",
     [](pb::Plan& p) { Step(p, 19)->mutable_concat_gradients()->add_parameters(1); }},
    {"JoinsInOtherOrder", "reduce", "joins parameter 0, none of its unit or not in layout order",
     [](pb::Plan& p) {
       Step(p, 19)->mutable_in()->SwapElements(0, 1);
       Step(p, 19)->mutable_concat_gradients()->mutable_parameters()->SwapElements(0, 1);
     }},
    {"JoinsOtherUnits", "reduce", "joins parameter 0, none of its unit",
     [](pb::Plan& p) { Step(p, 12)->mutable_concat_gradients()->set_parameters(0, 0); }},
    {"JoinsOtherPart", "collective", "buffer 9 has 8 bytes, the op moves 2",
     [](pb::Plan& p) { Step(p, 12)->mutable_concat_gradients()->set_parameters(0, 3); }},
    {"JoinsOtherElements", "reduce", "joins 5 elements, the flat parameter of its unit has 6",
     [](pb::Plan& p) { Step(p, 12)->mutable_concat_gradients()->set_elems(5); }},
    {"GradientOfOther", "reduce", "op 12 (concat_gradients, <root>): reads buffer 9, no gradient",
     [](pb::Plan& p) { p.mutable_buffers(9)->set_unit(1); }},
    {"PartOfCategory", "category", "reads buffer 9 of category UNSHARDED_GRAD, expected PARAM_GRAD",
     [](pb::Plan& p) { p.mutable_buffers(9)->set_category(pb::UNSHARDED_GRAD); }},
    {"JoinedOfCategory", "category", "writes buffer 10 of category TEMP, expected UNSHARDED_GRAD",
     [](pb::Plan& p) { p.mutable_buffers(10)->set_category(pb::TEMP); }},
    {"StaleVersion", "version", "op 19 (concat_gradients, block): reads version 2 of buffer 13",
     [](pb::Plan& p) {
       for (const int v : {2, 1}) Step(p, 19)->add_in_versions(v);
     }},
    {"CopiesOther", "reduce", "op 13 (reduce_copy_in, <root>): does not read the gradient of its",
     [](pb::Plan& p) { *Step(p, 12)->mutable_stream_wait() = {}; }},
    {"CopiesToOtherSize", "reduce",
     "writes 7 elements, the flat parameter has 6 and with padding 6",
     [](pb::Plan& p) {
       Step(p, 13)->mutable_reduce_copy_in()->set_elems_out(7);
       p.mutable_buffers(11)->set_bytes(28);
       Step(p, 14)->mutable_divide()->set_elems(7);
       Step(p, 15)->set_in(0, 10);
       Step(p, 15)->mutable_reduce_scatter()->set_dtype(pb::BF16);
       p.mutable_buffers(12)->set_bytes(6);
       Step(p, 16)->mutable_grad_finalize()->set_from(pb::BF16);
       Step(p, 16)->mutable_grad_finalize()->set_to(pb::BF16);
     }},
    {"NotPadded", "collective", "5 elements in all, expected 2 x 3 of a rank",
     [](pb::Plan& p) { Step(p, 24)->mutable_reduce_scatter()->set_elems_in(5); }},
    {"ReducesOther", "reduce", "op 24 (reduce_scatter, block): reads buffer 11, not the gradient",
     [](pb::Plan& p) {
       Step(p, 15)->mutable_frees()->RemoveLast();
       Step(p, 24)->add_frees(11);
       Step(p, 24)->set_in(0, 11);
     }},
    {"NotDivided", "reduce",
     "op 25 (grad_finalize, block): buffer 18 is the sum over 2 ranks divided by 1, expected the "
     "mean over all 2",
     [](pb::Plan& p) { Step(p, 23)->mutable_divide()->set_divisor(1); }},
    {"DividedTwice", "reduce", "buffer 18 is the sum over 2 ranks divided by 4",
     [](pb::Plan& p) {
       Insert(p, 24,
              "stream: 3 in: 17 out: 17 unit: 1 phase: BACKWARD "
              "divide { divisor: 2 elems: 6 dtype: FP32 }");
     }},
    {"AveragedAndDivided", "reduce", "buffer 18 is the sum over 2 ranks divided by 4",
     [](pb::Plan& p) {
       Step(p, 24)->mutable_reduce_scatter()->set_reduction(pb::ReduceScatter::AVG);
     }},
    {"NotReducedOverReplicas", "reduce",
     "op 16 (grad_finalize, <root>): buffer 12 is the sum over 2 ranks divided by 2, expected the "
     "mean over all 4",
     Replicate},
    {"ReducedOverReplicasFirst", "reduce",
     "op 14 (all_reduce, <root>): reads buffer 11, no reduced",
     [](pb::Plan& p) {
       Replicate(p);
       pb::AllReduce& reduce = *Step(p, 14)->mutable_all_reduce();
       reduce.set_group(1);
       reduce.set_elems(6);
       reduce.set_dtype(pb::FP32);
       reduce.set_reduction(pb::ReduceScatter::SUM);
     }},
    {"DividesOther", "reduce", "op 14 (divide, block): reads buffer 11, neither the gradient",
     [](pb::Plan& p) { Step(p, 14)->set_unit(1); }},
    {"NeverReduced", "reduce", "unit \"block\" is gathered in micro-batch 0 but not reduced",
     [](pb::Plan& p) { Step(p, 24)->mutable_stream_wait(); }},
    {"ReducedLocally", "reduce", "is for groups of one rank",
     [](pb::Plan& p) {
       pb::LocalReduce& reduce = *Step(p, 24)->mutable_local_reduce();
       reduce.set_elems(6);
       reduce.set_dtype(pb::FP32);
     }},
};
INSTANTIATE_TEST_SUITE_P(Reduce, BrokenFlatPlan, ::testing::ValuesIn(kReduce), NameOf);

const Mutation kOrder[] = {
    {"TheAllocatorKnowsNotOfCompute", "lifetime", "may reuse the bytes of buffer 6",
     [](pb::Plan& p) { p.mutable_buffers(6)->clear_recorded_on(); }},
    {"NorOfTheGather", "lifetime", "may reuse the bytes of buffer 4",
     [](pb::Plan& p) { p.mutable_buffers(4)->clear_recorded_on(); }},
    {"NorOfTheReduction", "lifetime", "may reuse the bytes of buffer 10",
     [](pb::Plan& p) { p.mutable_buffers(10)->clear_recorded_on(); }},
    {"ReadBeforeTheGather", "order", "op 6 (compute relu, block): reads buffer 6",
     [](pb::Plan& p) { Step(p, 6)->clear_waits(); }},
    {"GatheredBeforeTheCast", "order", "op 3 (all_gather, block): reads buffer 4",
     [](pb::Plan& p) { Step(p, 3)->clear_waits(); }},
    {"ReducedBeforeTheJoin", "order", "op 21 (reduce_copy_in, block): reads buffer 15",
     [](pb::Plan& p) { Step(p, 21)->clear_waits(); }},
    {"CastBeforeTheUpdate", "order", "op 2 (cast_shard, block): reads buffer 1",
     [](pb::Plan& p) { Step(p, 1)->mutable_stream_wait()->clear_on(); }},
};
INSTANTIATE_TEST_SUITE_P(Order, BrokenFlatPlan, ::testing::ValuesIn(kOrder), NameOf);

const Mutation kUpdate[] = {
    {"Elements", "optimizer", "updates 5 elements, the trainable shards have 6",
     [](pb::Plan& p) { Update(p, 0)->mutable_optimizer_step()->set_elems(5); }},
    {"ShardsInOtherOrder", "optimizer", "does not first write the shards",
     [](pb::Plan& p) { Update(p, 0)->mutable_out()->SwapElements(0, 1); }},
    {"StateSize", "optimizer", "buffer 20 of parameter \"<root>\" has 8 bytes, expected 12",
     [](pb::Plan& p) { p.mutable_buffers(20)->set_bytes(8); }},
    {"StateCount", "optimizer", "creates 5 buffers of state, expected 6",
     [](pb::Plan& p) { Init(p)->mutable_out()->RemoveLast(); }},
    {"GradientForgotten", "optimizer", "does not read the gradient of unit \"block\"",
     [](pb::Plan& p) { Update(p, 0)->mutable_in()->RemoveLast(); }},
    {"GradientNotReduced", "optimizer", "reads buffer 17, no reduced gradient",
     [](pb::Plan& p) {
       Update(p, 0)->set_in(1, 17);
       p.mutable_buffers(17)->set_category(pb::RS_INPUT);
       pb::Settle& settle = *Step(p, 24)->add_settles();
       settle.set_buffer(17);
       settle.set_category(pb::SHARDED_GRAD);
       Step(p, 24)->mutable_frees()->RemoveLast();
       Update(p, 1)->add_frees(17);
     }},
};
INSTANTIATE_TEST_SUITE_P(Update, BrokenFlatPlan, ::testing::ValuesIn(kUpdate), NameOf);

// Rank 0 has the first three elements of each flat parameter: three of the weights' four, none of
// the biases, of which it has no state.
TEST(FlatPlan, TheOptimizerMayUpdateParts) {
  pb::Plan plan = FlatPlan();
  for (const int unit : {0, 1}) Flat(plan, unit)->set_by_parameter(true);
  // In the plan's order: block.weight, block.bias, weight, bias; the shard of the block comes
  // first.
  const int64_t bytes[] = {4, 12, 12, 0, 0, 0, 4, 12, 12, 0, 0, 0};
  Init(plan)->clear_allocs();
  Init(plan)->clear_out();
  pb::Op& update = *Update(plan, 0);
  update.clear_out();
  for (const int shard : {1, 0}) update.add_out(shard);
  for (int i = 0; i < 12; ++i) {
    const int b = 19 + i;
    if (b >= plan.buffers_size()) plan.add_buffers()->set_category(pb::OPTIMIZER_STATE);
    plan.mutable_buffers(b)->set_bytes(bytes[i]);
    Init(plan)->add_allocs(b);
    Init(plan)->add_out(b);
    update.add_out(b);
  }
  ExpectAccepted(plan);
  plan.mutable_buffers(22)->set_bytes(4);
  EXPECT_THAT(
      CheckPlan(plan).message(),
      ::testing::HasSubstr("buffer 22 of parameter \"block.bias\" has 4 bytes, expected 0"));
}

// What a parameter lacks of gradients may be added from a second use before the reduction.
TEST(FlatPlan, GradientsOfTwoUsesAreAddedUp) {
  pb::Plan plan = FlatPlan();
  const int second = AddBuffer(plan, "bytes: 10 category: UNSHARDED_GRAD unit: 1");
  const Status parsed = ParseText(R"pb(
                                    name: "add_"
                                    operands { dtype: BF16 shape: 5 }
                                    operands { dtype: BF16 shape: 5 }
                                    results { dtype: BF16 shape: 5 }
                                  )pb",
                                  "kernel", *plan.add_kernels());
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  pb::Op* join = Insert(plan, 20, "");
  *join = plan.segments(0).ops(19);
  join->clear_frees();
  join->set_allocs(0, second);
  join->set_out(0, second);
  Step(plan, 19)->clear_frees();
  for (const int b : {13, 14}) join->add_frees(b);
  pb::Op* add = Insert(plan, 21, R"pb(
    stream: 0
    unit: 1
    phase: BACKWARD
    compute { kernel: 2 }
  )pb");
  for (const int b : {15, second}) add->add_in(b);
  add->add_out(15);
  add->add_frees(second);
  pb::Op* copy = Step(plan, 23);
  copy->add_in_versions(2);
  copy->set_waits(0, 21);
  ExpectAccepted(plan);
  // What anything else has written there is no gradient.
  plan.mutable_kernels(2)->set_name("mul_");
  EXPECT_FALSE(CheckPlan(plan).ok());
}

}  // namespace
}  // namespace foreshard
