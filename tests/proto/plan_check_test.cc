#include "proto/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "proto/plan.pb.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(PlanCheck, AcceptsASmallPlan) {
  const Status status = CheckPlan(SmallPlan());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PlanCheck, AcceptsASegmentThatRepeats) {
  pb::Plan plan = SmallPlan();
  // All that the step leaves alive are the gradients, and the update frees them.
  for (const int op : {1, 2}) {
    plan.mutable_segments(0)->mutable_ops()->Add(pb::Op(plan.segments(2).ops(op)));
  }
  plan.mutable_segments(2)->clear_ops();
  plan.mutable_programs(1)->mutable_uses(0)->set_repeat(std::numeric_limits<int32_t>::max());
  // Reduced once per micro-batch: the repetitions stand for one program text.
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

class BrokenPlan : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenPlan, IsRefusedByItsRule) { ExpectRefused(GetParam()); }

const Mutation kTables[] = {
    {"OldVersion", "version", "format version 1, this program reads 4; write the plan again",
     [](pb::Plan& p) { p.mutable_header()->set_format_version(1); }},
    {"NewVersion", "version", "format version 5",
     [](pb::Plan& p) { p.mutable_header()->set_format_version(5); }},
    {"MeshProduct", "mesh", "is not world_size 3",
     [](pb::Plan& p) { p.mutable_mesh()->set_world_size(3); }},
    {"MeshNegative", "mesh", "shard_size -1",
     [](pb::Plan& p) {
       p.mutable_mesh()->set_shard_size(-1);
       p.mutable_mesh()->set_replicate_size(-2);
     }},
    {"GroupLargerThanWorld", "group", "group 0",
     [](pb::Plan& p) { p.mutable_groups(0)->set_stride(2); }},
    {"StreamRole", "stream", "stream 1", [](pb::Plan& p) { p.mutable_streams(1)->clear_role(); }},
    {"BufferNegative", "buffer", "buffer 4",
     [](pb::Plan& p) { p.mutable_buffers(4)->set_bytes(-1); }},
    {"BufferSumOverflows", "buffer", "2^62",
     [](pb::Plan& p) { p.mutable_buffers(15)->set_bytes(kHuge); }},
    {"BufferCategory", "buffer", "category 99",
     [](pb::Plan& p) { p.mutable_buffers(4)->set_category(static_cast<pb::Category>(99)); }},
    {"BufferStream", "index", "stream 4 of 4",
     [](pb::Plan& p) { p.mutable_buffers(4)->set_stream(4); }},
    {"BufferUnit", "index", "unit -1", [](pb::Plan& p) { p.mutable_buffers(4)->set_unit(-1); }},
    {"BufferModule", "index", "module 2", [](pb::Plan& p) { p.mutable_buffers(7)->set_module(2); }},
    {"FewerRank", "index", "rank 2",
     [](pb::Plan& p) { p.mutable_buffers(0)->mutable_others(0)->set_rank(2); }},
    {"OthersAlike", "buffer", "rank 1 holds 16 bytes, as rank 0 does",
     [](pb::Plan& p) { p.mutable_buffers(0)->mutable_others(0)->set_bytes(16); }},
    {"OthersNegative", "buffer", "rank 1 holds -1 bytes",
     [](pb::Plan& p) { p.mutable_buffers(0)->mutable_others(0)->set_bytes(-1); }},
    {"OthersTooMany", "buffer", "all buffers together reach 2^62",
     [](pb::Plan& p) {
       p.mutable_buffers(0)->mutable_others(0)->set_bytes((int64_t{1} << 62) - 1);
     }},
    {"OthersOutOfOrder", "buffer", "rank 1 is listed out of order",
     [](pb::Plan& p) { *p.mutable_buffers(0)->add_others() = p.buffers(0).others(0); }},
    {"OthersRankZero", "buffer", "rank 0 is listed out of order",
     [](pb::Plan& p) { p.mutable_buffers(0)->mutable_others(0)->set_rank(0); }},
    {"ResidentIndex", "index", "buffer 21", [](pb::Plan& p) { p.add_resident(21); }},
    {"ResidentTwice", "lifetime", "listed twice", [](pb::Plan& p) { p.add_resident(0); }},
    {"InputNotResident", "input", "is not resident",
     [](pb::Plan& p) { p.mutable_resident()->RemoveLast(); }},
    {"InputTooLarge", "input", "16 bytes", [](pb::Plan& p) { p.mutable_inputs(0)->add_shape(2); }},
    {"InputTooSmall", "input", "16 bytes",
     [](pb::Plan& p) { p.mutable_inputs(0)->set_shape(1, 1); }},
    {"InputOverflows", "input", "do not fill",
     [](pb::Plan& p) { p.mutable_inputs(0)->add_shape(kHuge); }},
    {"InputRule", "input", "rule 0", [](pb::Plan& p) { p.mutable_inputs(0)->clear_rule(); }},
    {"InputBuffer", "index", "buffer -1", [](pb::Plan& p) { p.mutable_inputs(0)->set_buffer(-1); }},
    {"ParameterUnit", "index", "unit 2", [](pb::Plan& p) { p.mutable_parameters(0)->set_unit(2); }},
    {"ParameterBuffer", "index", "buffer 99",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_sharded_buffer(99); }},
    {"RecordedStream", "index", "buffer 6: stream 4 of 4",
     [](pb::Plan& p) { p.mutable_buffers(6)->add_recorded_on(4); }},
    {"UnitModule", "index", "module 7", [](pb::Plan& p) { p.mutable_units(0)->add_modules(7); }},
    {"UnitParameter", "index", "parameter 3",
     [](pb::Plan& p) { p.mutable_units(0)->add_parameters(3); }},
    {"ProgramNames", "programs", "at place 0 of 2 is \"warmup\", expected \"first\"",
     [](pb::Plan& p) { p.mutable_programs(0)->set_name("warmup"); }},
    {"WarmupNames", "programs", "at place 2 of 4 is \"warmup\", expected \"warmup_2\"",
     [](pb::Plan& p) {
       const pb::Program steady = p.programs(1);
       p.mutable_programs(1)->set_name("warmup");
       *p.add_programs() = p.programs(1);
       *p.add_programs() = steady;
     }},
    {"ProgramMissing", "programs", "found 1, expected \"first\", then \"steady\"",
     [](pb::Plan& p) { p.mutable_programs()->RemoveLast(); }},
    {"ProgramSegment", "index", "segment 3",
     [](pb::Plan& p) { p.mutable_programs(1)->mutable_uses(0)->set_segment(3); }},
    {"Repeat", "repeat", "0 times",
     [](pb::Plan& p) { p.mutable_programs(1)->mutable_uses(0)->set_repeat(0); }},
};
INSTANTIATE_TEST_SUITE_P(Tables, BrokenPlan, ::testing::ValuesIn(kTables), NameOf);

const Mutation kLayout[] = {
    {"OtherUnit", "layout", "names unit 0",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_unit(0); }},
    {"ShardSize", "layout", "padded_shard_numel 3",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_padded_shard_numel(3); }},
    {"NoDimensions", "layout", "nothing for this shape",
     [](pb::Plan& p) { p.mutable_parameters(0)->clear_shape(); }},
    {"HugeShape", "layout", "nothing for this shape",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_shape(1, kHuge); }},
    {"NegativeShape", "layout", "nothing for this shape",
     [](pb::Plan& p) { p.mutable_parameters(0)->set_shape(0, -3); }},
    {"Offset", "layout", "shard_offset 1, expected 2",
     [](pb::Plan& p) { p.mutable_parameters(2)->set_shard_offset(1); }},
    {"ShardBuffer", "layout", "does not fill the 3 bytes of buffer 2",
     [](pb::Plan& p) { p.mutable_buffers(2)->set_bytes(3); }},
    {"Numel", "layout", "numel 5", [](pb::Plan& p) { p.mutable_units(0)->set_numel(5); }},
    {"PaddedSum", "layout", "padded_shard_numel 2, expected 3",
     [](pb::Plan& p) { p.mutable_units(0)->set_padded_shard_numel(2); }},
    {"GradSum", "layout", "grad_padded_shard_numel 3, expected 2",
     [](pb::Plan& p) { p.mutable_units(0)->set_grad_padded_shard_numel(3); }},
    {"Gathered", "layout", "gathered_numel 7",
     [](pb::Plan& p) { p.mutable_units(0)->set_gathered_numel(7); }},
    {"ListedTwice", "layout", "block.weight",
     [](pb::Plan& p) {
       p.mutable_units(1)->add_parameters(0);
       p.mutable_parameters(0)->set_shard_offset(0);
     }},
    {"Unlisted", "layout", "listed 0 times",
     [](pb::Plan& p) { *p.add_parameters() = p.parameters(2); }},
};
INSTANTIATE_TEST_SUITE_P(Layout, BrokenPlan, ::testing::ValuesIn(kLayout), NameOf);

const Mutation kKernels[] = {
    {"Name", "kernel", "no kernel of this name",
     [](pb::Plan& p) { p.mutable_kernels(0)->set_name("no_such"); }},
    {"Operands", "kernel", "2 operands",
     [](pb::Plan& p) { *p.mutable_kernels(0)->add_operands() = p.kernels(0).results(0); }},
    {"ShapeRule", "kernel", "relu",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_results(0)->set_shape(1, 1); }},
    {"DType", "kernel", "dtype 0",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->clear_dtype(); }},
    {"NegativeSize", "kernel", "negative",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->set_shape(0, -2); }},
    {"HugeSize", "kernel", "2^62",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->set_shape(0, kHuge); }},
    {"Dimensions", "kernel", "7 dimensions",
     [](pb::Plan& p) {
       p.mutable_kernels(0)->mutable_operands(0)->clear_strides();
       for (int i = 0; i < 5; ++i) p.mutable_kernels(0)->mutable_operands(0)->add_shape(1);
     }},
    {"StrideCount", "kernel", "3 strides",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->add_strides(1); }},
    {"NegativeStride", "kernel", "stride -1",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->set_strides(0, -1); }},
    {"Flops", "kernel", "flops", [](pb::Plan& p) { p.mutable_kernels(0)->set_flops(-1); }},
    {"BuffersRead", "kernel", "2 buffers read",
     [](pb::Plan& p) {
       Step(p, 4)->add_in(0);
       Step(p, 4)->add_in_offsets(0);
     }},
    {"Index", "index", "kernel 2 of 2",
     [](pb::Plan& p) { Step(p, 4)->mutable_compute()->set_kernel(2); }},
};
INSTANTIATE_TEST_SUITE_P(Kernels, BrokenPlan, ::testing::ValuesIn(kKernels), NameOf);

pb::OptimizerStep* Update(pb::Plan& p) {
  return p.mutable_segments(2)->mutable_ops(0)->mutable_optimizer_step();
}

void BecomeSgd(pb::Plan& p, double momentum) {
  Update(p)->set_kind(pb::SGD);
  Update(p)->set_momentum(momentum);
}

// One momentum buffer a parameter instead of AdamW's three.
TEST(PlanCheck, AcceptsSgdWithAndWithoutMomentum) {
  pb::Plan plan = SmallPlan();
  BecomeSgd(plan, 0.9);
  pb::Op& init = *plan.mutable_segments(1)->mutable_ops(0);
  init.mutable_optimizer_init()->set_kind(pb::SGD);
  pb::Op& update = *plan.mutable_segments(2)->mutable_ops(0);
  update.clear_out();
  init.clear_out();
  init.clear_allocs();
  for (const int b : {0, 1, 16, 19}) update.add_out(b);
  for (const int b : {16, 19}) init.add_out(b), init.add_allocs(b);
  const Status with = CheckPlan(plan);
  EXPECT_TRUE(with.ok()) << with.message();
  update.mutable_optimizer_step()->clear_momentum();
  update.mutable_out()->Truncate(2);
  plan.mutable_programs(0)->mutable_uses()->DeleteSubrange(1, 1);
  const Status without = CheckPlan(plan);
  EXPECT_TRUE(without.ok()) << without.message();
}

const Mutation kOps[] = {
    {"NoKind", "kind", "op 8", [](pb::Plan& p) { Step(p, 8)->clear_kind(); }},
    {"NoPhase", "phase", "op 2", [](pb::Plan& p) { Step(p, 2)->clear_phase(); }},
    {"MicroBatch", "phase", "op 2", [](pb::Plan& p) { Step(p, 2)->set_micro_batch(-1); }},
    {"StreamMissing", "stream", "names none", [](pb::Plan& p) { Step(p, 3)->clear_stream(); }},
    {"StreamOnReshard", "stream", "op 8 (reshard, block)",
     [](pb::Plan& p) { Step(p, 8)->set_stream(0); }},
    {"StreamIndex", "index", "stream 4 of 4", [](pb::Plan& p) { Step(p, 3)->set_stream(4); }},
    {"StreamWaitOn", "index", "stream 9",
     [](pb::Plan& p) { Step(p, 15)->mutable_stream_wait()->add_on(9); }},
    {"Unit", "index", "unit 2 of 2", [](pb::Plan& p) { Step(p, 3)->set_unit(2); }},
    {"Module", "index", "module -1", [](pb::Plan& p) { Step(p, 4)->set_module(-1); }},
    {"Alloc", "index", "allocates buffer 21", [](pb::Plan& p) { Step(p, 3)->add_allocs(21); }},
    {"FreeIndex", "index", "frees buffer -1", [](pb::Plan& p) { Step(p, 3)->add_frees(-1); }},
    {"In", "index", "reads buffer 21", [](pb::Plan& p) { Step(p, 3)->add_in(21); }},
    {"Out", "index", "writes buffer 21", [](pb::Plan& p) { Step(p, 3)->add_out(21); }},
    {"WaitsForItself", "waits", "waits for op 3", [](pb::Plan& p) { Step(p, 3)->add_waits(3); }},
    {"WaitsNegative", "waits", "op -1", [](pb::Plan& p) { Step(p, 3)->add_waits(-1); }},
    {"WaitsForNoStream", "waits", "on no stream", [](pb::Plan& p) { Step(p, 10)->add_waits(8); }},
    {"HostWaitsLater", "waits", "op 4", [](pb::Plan& p) { Step(p, 3)->add_host_waits(4); }},
    {"ViewOffset", "view", "ends at byte 18, the buffer at 16",
     [](pb::Plan& p) { Step(p, 4)->set_in_offsets(0, 5); }},
    {"ViewHugeOffset", "view", "2^62", [](pb::Plan& p) { Step(p, 4)->set_in_offsets(0, kHuge); }},
    {"ViewNegativeOffset", "view", "view of buffer 6",
     [](pb::Plan& p) { Step(p, 4)->set_in_offsets(0, -1); }},
    {"ViewStrides", "view", "view of buffer 6",
     [](pb::Plan& p) { p.mutable_kernels(0)->mutable_operands(0)->set_strides(0, 3); }},
    {"ViewResult", "view", "view of buffer 7",
     [](pb::Plan& p) { p.mutable_buffers(7)->set_bytes(7); }},
    {"ViewOffsetCount", "view", "2 offsets", [](pb::Plan& p) { Step(p, 4)->add_in_offsets(0); }},
    {"GatherElems", "collective", "expected 2 x 4",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->set_elems_out(9); }},
    {"GatherHuge", "collective", "elements in all",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->set_elems_in(kHuge); }},
    {"GatherGroup", "index", "group 1 of 1",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->set_group(1); }},
    {"GatherBytes", "collective", "buffer 5 has 16 bytes, the op moves 32",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->set_dtype(pb::FP32); }},
    {"GatherDType", "collective", "dtype 0",
     [](pb::Plan& p) { Step(p, 2)->mutable_all_gather()->clear_dtype(); }},
    {"ReduceElems", "collective", "expected 2 x 4",
     [](pb::Plan& p) { Step(p, 11)->mutable_reduce_scatter()->set_elems_in(4); }},
    {"ReduceBytes", "collective", "buffer 9",
     [](pb::Plan& p) { Step(p, 11)->mutable_reduce_scatter()->set_dtype(pb::BF16); }},
    {"ReduceReduction", "collective", "neither SUM, AVG nor PREMUL_SUM",
     [](pb::Plan& p) { Step(p, 11)->mutable_reduce_scatter()->clear_reduction(); }},
    {"CastSize", "collective", "read have 16 bytes",
     [](pb::Plan& p) { Step(p, 0)->mutable_cast_shard()->set_elems(5); }},
    {"CopyInSize", "collective", "the op moves 10",
     [](pb::Plan& p) { Step(p, 1)->mutable_gather_copy_in()->set_elems(5); }},
    {"CopyOutSize", "collective", "the op moves 18",
     [](pb::Plan& p) { Step(p, 3)->mutable_copy_out()->set_elems(9); }},
    {"ReduceCopyInSize", "collective", "do not fit",
     [](pb::Plan& p) { Step(p, 10)->mutable_reduce_copy_in()->set_elems_in(9); }},
    {"OptimizerUnknown", "optimizer", "or its implementation is unknown",
     [](pb::Plan& p) { Update(p)->set_kind(pb::OPTIMIZER_NONE); }},
    {"OptimizerImplementation", "optimizer", "or its implementation is unknown",
     [](pb::Plan& p) { Update(p)->clear_impl(); }},
    {"OptimizerNumber", "optimizer", "is told -0.5", [](pb::Plan& p) { Update(p)->set_eps(-0.5); }},
    {"OptimizerNan", "optimizer", "is told nan",
     [](pb::Plan& p) { Update(p)->set_learning_rate(std::nan("")); }},
    {"MomentumOfAdamW", "optimizer", "has momentum 0.9",
     [](pb::Plan& p) { Update(p)->set_momentum(0.9); }},
    {"SgdWithoutMomentum", "optimizer", "writes 8 buffers, expected 2",
     [](pb::Plan& p) { BecomeSgd(p, 0); }},
    {"SgdWithMomentum", "optimizer", "writes 8 buffers, expected 4",
     [](pb::Plan& p) { BecomeSgd(p, 0.9); }},
    {"SgdState", "optimizer", "buffer 15 of parameter \"block.weight\" has 4 bytes, expected 16",
     [](pb::Plan& p) {
       p.mutable_segments(1)->mutable_ops(0)->mutable_optimizer_init()->set_kind(pb::SGD);
     }},
    {"StateOfNoOptimizer", "optimizer", "the state of an unknown optimizer",
     [](pb::Plan& p) {
       p.mutable_segments(1)->mutable_ops(0)->mutable_optimizer_init()->clear_kind();
     }},
    {"OptimizerElems", "optimizer", "updates -1 elements, the trainable shards have 6",
     [](pb::Plan& p) {
       p.mutable_segments(2)->mutable_ops(0)->mutable_optimizer_step()->set_elems(-1);
     }},
};
INSTANTIATE_TEST_SUITE_P(Ops, BrokenPlan, ::testing::ValuesIn(kOps), NameOf);

const Mutation kWalks[] = {
    {"ReadBeforeAlloc", "lifetime", "op 3 (copy_out, block): writes buffer 6, which is not alive",
     [](pb::Plan& p) { Step(p, 3)->clear_allocs(); }},
    {"ReadAfterFree", "lifetime", "op 2 (all_gather, block): reads buffer 5",
     [](pb::Plan& p) { Step(p, 1)->add_frees(5); }},
    {"VersionRead", "version", "op 4 (compute",
     [](pb::Plan& p) {
       for (int i = 0; i < Step(p, 4)->in_size(); ++i) Step(p, 4)->add_in_versions(2);
     }},
    {"VersionCount", "version", "versions for",
     [](pb::Plan& p) {
       for (int i = 0; i <= Step(p, 4)->in_size(); ++i) Step(p, 4)->add_in_versions(1);
     }},
    {"AllocTwice", "lifetime", "allocates buffer 6, which is alive",
     [](pb::Plan& p) { Step(p, 4)->add_allocs(6); }},
    {"AllocResident", "lifetime", "allocates buffer 0",
     [](pb::Plan& p) { Step(p, 4)->add_allocs(0); }},
    {"FreeTwice", "lifetime", "frees buffer 6, which is not alive",
     [](pb::Plan& p) { Step(p, 9)->add_frees(6); }},
    {"FreeResident", "lifetime", "frees buffer 3, which is resident",
     [](pb::Plan& p) { Step(p, 9)->add_frees(3); }},
    {"LeakInFirst", "lifetime", "(program \"steady\")",
     [](pb::Plan& p) { Step(p, 16)->clear_frees(); }},
    {"LeakInRepetition", "lifetime", "allocates buffer 10, which is alive",
     [](pb::Plan& p) { p.mutable_programs(0)->mutable_uses(0)->set_repeat(2); }},
    {"SteadyLeak", "steady", "buffer 15 is alive at its end but dead at its start",
     [](pb::Plan& p) {
       p.mutable_programs(0)->mutable_uses()->DeleteSubrange(1, 2);
       *p.mutable_programs(0)->add_uses() = p.programs(1).uses(1);
       for (int b = 15; b <= 20; ++b) {
         p.mutable_segments(2)->mutable_ops(0)->add_allocs(b);
         p.mutable_segments(2)->mutable_ops(1)->add_frees(b);
       }
       p.mutable_programs(1)->add_uses()->set_segment(1);
       p.mutable_programs(1)->mutable_uses(2)->set_repeat(1);
     }},
    {"SteadyFreesState", "steady", "buffer 15 is dead at its end but alive at its start",
     [](pb::Plan& p) {
       pb::Segment* extra = p.add_segments();
       *extra->add_ops() = p.segments(2).ops(1);
       extra->mutable_ops(0)->clear_frees();
       extra->mutable_ops(0)->add_frees(15);
       p.mutable_programs(1)->add_uses()->set_segment(3);
       p.mutable_programs(1)->mutable_uses(2)->set_repeat(1);
     }},
    {"NeverReduced", "reduce", "unit \"block\" is gathered in micro-batch 0 but not reduced",
     [](pb::Plan& p) { Step(p, 11)->mutable_stream_wait()->add_on(0); }},
    {"ReducedTwice", "reduce", "op 14 (reduce_scatter, block): unit \"block\" is reduced twice",
     [](pb::Plan& p) { Step(p, 14)->set_unit(1); }},
};
INSTANTIATE_TEST_SUITE_P(Walks, BrokenPlan, ::testing::ValuesIn(kWalks), NameOf);

}  // namespace
}  // namespace foreshard
