// What a rank has of a flat parameter, and where each element goes between it and the optimizer: a
// unit of three tensors on three ranks, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "exec/cpu/clip.h"
#include "exec/cpu/update.h"
#include "exec/shard_map.h"
#include "tests/exec/prepared_ops.h"

namespace foreshard::exec {
namespace {

// On two replicas of three ranks. Of 17 elements a [5] has 0 to 4, w [2, 3] 8 to 13, b [2] 14 and
// 15; nobody has 5 to 7 and 16. A rank keeps ceil(17 / 3) = 6, the last one's sixth is padding:
//   rank 0: a0 a1 a2 a3 a4 -    rank 1: - - w0 w1 w2 w3    rank 2: w4 w5 b0 b1 - -
constexpr std::string_view kTables = R"pb(
  mesh { world_size: 6 shard_size: 3 replicate_size: 2 }
  decisions { original_dtype: FP32 }
  groups { name: "shard" size: 3 stride: 1 }
  groups { name: "replicas" size: 2 stride: 3 }
  parameters { path: "a" shape: 5 dtype: FP32 }
  parameters {
    path: "w"
    shape: [ 2, 3 ]
    dtype: FP32
    flat_offset: 8
  }
  parameters { path: "b" shape: 2 dtype: FP32 flat_offset: 14 }
  units {
    name: "u"
    parameters: [ 0, 1, 2 ]
    numel: 17
    padded_shard_numel: 6
    grad_padded_shard_numel: 6
    gathered_numel: 18
    flat { numel: 17 sharded_buffer: 0 }
  }
  kernels {
    # gradients of a and b
    name: "x"
    results { dtype: FP32 shape: 5 }
    results { dtype: FP32 shape: 2 }
  }
  streams {}
  buffers { category: SHARDED_PARAM }  # 0
  buffers {}                           # 1: cast
  buffers {}                           # 2: gathered
  buffers {}                           # 3 and 4: gradients of a and b
  buffers {}
  buffers {}                             # 5: joined
  buffers {}                             # 6: with padding
  buffers { category: SHARDED_GRAD }     # 7
  buffers { category: OPTIMIZER_STATE }  # 8 to 16
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  buffers { category: OPTIMIZER_STATE }
  resident: 0
)pb";

TEST(Flat, ARankHasOneRunOfEachPartOrNothing) {
  const auto plan = ParseOrDie<pb::Plan>(kTables);
  struct Part {
    int64_t numel, offset, first;
  };
  const Part expected[3][3] = {{{5, 0, 0}, {0, 0, 0}, {0, 0, 0}},
                               {{0, 0, 0}, {4, 2, 0}, {0, 0, 0}},
                               {{0, 0, 0}, {2, 0, 4}, {2, 2, 0}}};
  for (int rank = 0; rank < 6; ++rank) {
    const ShardMap shards(plan, rank);
    for (int p = 0; p < 3; ++p) {
      const Part& part = expected[rank % 3][p];
      EXPECT_EQ(shards.local_numel(p), part.numel) << rank << p;
      EXPECT_EQ(shards.local_offset(p), part.offset) << rank << p;
      EXPECT_EQ(shards.buffer_numel(p), 6);
      if (part.numel == 0) continue;
      EXPECT_EQ(shards.LocalRuns(p).first, part.first) << rank << p;
      EXPECT_EQ(shards.LocalRuns(p).numel, part.numel) << rank << p;
      EXPECT_EQ(shards.LocalRuns(p).count, 1);
    }
  }
}

constexpr std::string_view kMoves = R"pb(
  ops {
    stream: 0
    unit: 0
    in: 0
    out: 1
    cast_shard { elems: 6 from: FP32 to: BF16 }
  }
  ops {
    stream: 0
    unit: 0
    in: 1
    out: 2
    all_gather { group: 0 elems_in: 6 elems_out: 18 dtype: BF16 }
  }
  ops {
    stream: 0
    out: [ 3, 4 ]
    compute { kernel: 0 }
  }
  ops {
    stream: 0
    unit: 0
    in: [ 3, 4 ]
    out: 5
    concat_gradients {
      parameters: [ 0, 2 ]
      elems: 17
      dtype: FP32
    }
  }
  ops {
    stream: 0
    unit: 0
    in: 5
    out: 6
    reduce_copy_in { elems_in: 17 elems_out: 18 from: FP32 to: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 6
    out: 7
    reduce_scatter { group: 0 elems_in: 18 elems_out: 6 dtype: FP32 reduction: SUM }
  }
)pb";

TEST(Flat, AShardIsGatheredFromItsOwnBuffer) {
  const PreparedOps ops(kTables, kMoves, 1);
  ASSERT_TRUE(ops.status().ok()) << ops.status().message();
  EXPECT_EQ(ops.bytes(0), 6 * 4);
  EXPECT_EQ(ops.bytes(1), 6 * 2);
  EXPECT_EQ(ops.bytes(2), 18 * 2);
  EXPECT_FALSE(ops.work<GatherSlices>(1).is_in_place);
  EXPECT_EQ(ops.work<GatherSlices>(1).slice, 6);
}

TEST(Flat, GradientsAreJoinedWithZerosWhereThereIsNone) {
  const PreparedOps ops(kTables, kMoves, 0);
  const Floats joined = ops.Run(3, {{1, 2, 3, 4, 5}, {31, 32}})[0];
  const Floats expected = {1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 32, 0};
  EXPECT_EQ(joined, expected);
  Floats padded = expected;
  padded.push_back(0);
  EXPECT_EQ(ops.Run(4, {expected})[0], padded);
}

TEST(Flat, AShardOfAnotherSizeIsNotGathered) {
  const PreparedOps ops(kTables, kMoves, 0, [](pb::Plan& plan) {
    plan.mutable_segments(0)->mutable_ops(1)->mutable_all_gather()->set_elems_in(5);
  });
  EXPECT_THAT(ops.status().message(),
              testing::HasSubstr("works on 5 bf16 of buffer 1, which holds 12 bytes"));
}

TEST(Flat, AGradientOfAnotherSizeIsNotJoined) {
  const PreparedOps ops(kTables, kMoves, 0, [](pb::Plan& plan) {
    plan.mutable_kernels(0)->mutable_results(1)->set_shape(0, 3);
  });
  EXPECT_THAT(ops.status().message(),
              testing::HasSubstr("works on 2 fp32 of buffer 4, which holds 12 bytes"));
}

// ---- the optimizer

std::string Update(std::string_view states) {
  return fmt::format(R"({}
    ops {{ stream: 0 out: [ {} ] optimizer_init {{ kind: ADAMW }} }}
    ops {{ stream: 0 in: 7 out: [ 0, {} ] optimizer_step {{ kind: ADAMW impl: FUSED }} }})",
                     kMoves, states, states);
}

// Step count and moments, of all six elements.
TEST(Flat, AShardIsOneTensorOfTheOptimizer) {
  for (int rank = 0; rank < 3; ++rank) {
    const PreparedOps ops(kTables, Update("8, 9, 10"), rank);
    ASSERT_TRUE(ops.status().ok()) << ops.status().message();
    EXPECT_EQ(ops.bytes(8), 4);
    EXPECT_EQ(ops.bytes(9), 6 * 4);
    const auto& update = ops.work<UpdateParameters>(7);
    ASSERT_EQ(update.slices.size(), 1u);
    EXPECT_EQ(update.slices[0].numel, 6);
    EXPECT_EQ(update.slices[0].gradient_from, 0);
    EXPECT_EQ(update.slices[0].parameter_from, 0);
    EXPECT_EQ(update.slices[0].state, 1);
    ASSERT_EQ(update.gradients.size(), 3u);
    EXPECT_EQ(update.gradients[1].numel, (std::vector<int64_t>{0, 4, 2}[rank]));
    EXPECT_EQ(update.gradients[1].gradient_from, rank == 1 ? 2 : 0);
  }
}

void ByParameter(pb::Plan& plan) { plan.mutable_units(0)->mutable_flat()->set_by_parameter(true); }

// Ranks add up one square.
TEST(Flat, TheNormIsThatOfAllTensorsTogether) {
  const std::string clip = fmt::format(R"({}
    ops {{ stream: 0 phase: CLIP in: 7 out: [ 8, 9, 10, 11, 12 ] clip_norms {{}} }})",
                                       kMoves);
  const PreparedOps ops(kTables, clip, 2, ByParameter);
  ASSERT_TRUE(ops.status().ok()) << ops.status().message();
  Floats gradient = {1, 2, 2, 4, 0, 0};
  std::vector<Floats> out = {{-1}, {-1}, {-1}, {-1, -1, -1}, {-1}};
  Launch launch;
  launch.in = {{reinterpret_cast<std::byte*>(gradient.data()), 24}};
  for (size_t i = 0; i < out.size(); ++i) {
    const auto bytes = static_cast<int64_t>(out[i].size() * sizeof(float));
    EXPECT_EQ(ops.bytes(static_cast<int>(8 + i)), bytes);
    launch.out.push_back({reinterpret_cast<std::byte*>(out[i].data()), bytes});
  }
  Measure(ops.work<MeasureGradients>(6), launch);
  // Nothing of a, the last two elements of w, and b.
  EXPECT_EQ(out[0], Floats{0});
  EXPECT_EQ(out[1], Floats{std::sqrt(5.0F)});
  EXPECT_EQ(out[2], Floats{std::sqrt(20.0F)});
  EXPECT_EQ(out[3], (Floats{0, std::sqrt(5.0F), std::sqrt(20.0F)}));
  EXPECT_EQ(out[4], Floats{25});
}

TEST(Flat, APartThatARankLacksHasNoState) {
  const std::vector<std::vector<int64_t>> numels = {{5, 0, 0}, {0, 4, 0}, {0, 2, 2}};
  for (int rank = 0; rank < 3; ++rank) {
    const PreparedOps ops(kTables, Update("8, 9, 10, 11, 12, 13, 14, 15, 16"), rank, ByParameter);
    ASSERT_TRUE(ops.status().ok()) << ops.status().message();
    const auto& slices = ops.work<UpdateParameters>(7).slices;
    ASSERT_EQ(slices.size(), 3u);
    for (int p = 0; p < 3; ++p) {
      const int64_t numel = numels[rank][p];
      EXPECT_EQ(ops.bytes(8 + 3 * p), numel == 0 ? 0 : 4) << rank << p;
      EXPECT_EQ(ops.bytes(9 + 3 * p), numel * 4) << rank << p;
      EXPECT_EQ(slices[p].numel, numel);
      EXPECT_EQ(slices[p].state, 1 + 3 * p);
      EXPECT_EQ(slices[p].parameter, 0);
      EXPECT_EQ(slices[p].parameter_from, slices[p].gradient_from);
    }
    EXPECT_EQ(slices[1].parameter_from, rank == 1 ? 2 : 0);
    EXPECT_EQ(slices[2].parameter_from, rank == 2 ? 2 : 0);
  }
}

// Rank 2, by hand: SGD takes 0.5 of the gradient off w4, w5, b0 and b1, and off nothing else.
TEST(Flat, AnUpdateLeavesPaddingAlone) {
  const std::string update = fmt::format(R"({}
    ops {{ stream: 0 in: 7 out: 0 optimizer_step {{ kind: SGD impl: FUSED learning_rate: 0.5 }} }})",
                                         kMoves);
  const PreparedOps ops(kTables, update, 2, ByParameter);
  ASSERT_TRUE(ops.status().ok()) << ops.status().message();
  Floats gradient = {2, 4, 6, 8, 10, 12};
  Floats shard = {1, 1, 1, 1, 1, 1};
  Launch launch;
  launch.in = {{reinterpret_cast<std::byte*>(gradient.data()), 24}};
  launch.out = {{reinterpret_cast<std::byte*>(shard.data()), 24}};
  exec::Update(ops.work<UpdateParameters>(6), launch);
  EXPECT_EQ(shard, (Floats{0, -1, -2, -3, 1, 1}));
}

}  // namespace
}  // namespace foreshard::exec
