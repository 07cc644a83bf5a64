// Where each element goes on its way from shards to parameters and from gradients to the optimizer,
// for cuts that small models do not have: a unit of three tensors, one of them cut along its second
// dimension, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/cpu/reduced.h"
#include "tests/exec/prepared_ops.h"

namespace foreshard::exec {
namespace {

// On two replicas of four ranks. a [3]: a row on each rank, the last one's is padding. w [2, 8]:
// two columns, so 4 elements. b [4]: one each. A rank's shard is 6 elements.
constexpr std::string_view kTables = R"pb(
  mesh { world_size: 8 shard_size: 4 replicate_size: 2 }
  groups { name: "shard" size: 4 stride: 1 }
  groups { name: "replicas" size: 2 stride: 4 }
  groups { name: "half" size: 2 stride: 1 }
  parameters { path: "a" shape: 3 sharded_buffer: 0 dtype: FP32 }
  parameters {
    path: "w"
    shape: [ 2, 8 ]
    sharded_buffer: 1
    dtype: FP32
    shard_dim: 1
  }
  parameters { path: "b" shape: 4 sharded_buffer: 2 dtype: FP32 }
  units {
    name: "u"
    parameters: [ 0, 1, 2 ]
    numel: 23
    padded_shard_numel: 6
    grad_padded_shard_numel: 6
    gathered_numel: 24
  }
  kernels {
    # gradients
    name: "x"
    results { dtype: FP32 shape: 3 }
    results { dtype: FP32 shape: 4 }
    results {
      dtype: FP32
      shape: [ 2, 8 ]
    }
  }
  streams {}
  buffers {}  # 0 to 2: shards
  buffers {}
  buffers {}
  buffers {}  # 3: gathered
  buffers {}  # 4 to 6: a, w by rank, b
  buffers {}
  buffers {}
  buffers {}  # 7: w
  buffers {}  # 8 to 10: kept slices
  buffers {}
  buffers {}
  buffers {}              # 11: gathered again
  buffers {}              # 12: a gradient of w, by rank
  buffers {}              # 13: what is reduced
  buffers {}              # 14: the reduced shard
  buffers { host: true }  # 15 to 17: gradients on the host
  buffers { host: true }
  buffers { host: true }
  resident: [ 0, 1, 2 ]
)pb";

// One segment of these ops on a rank.
PreparedOps Ops(std::string_view ops, int rank, int64_t rows_of_gradient = 3) {
  return {kTables, ops, rank, [=](pb::Plan& plan) {
            plan.mutable_kernels(0)->mutable_results(0)->set_shape(0, rows_of_gradient);
          }};
}

constexpr std::string_view kGather = R"pb(
  ops {
    stream: 0
    unit: 0
    in: [ 0, 1, 2 ]
    out: 3
    gather_copy_in { elems: 6 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 3
    out: 3
    all_gather { group: 0 elems_in: 6 elems_out: 24 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 3
    out: [ 4, 5, 6 ]
    copy_out { elems: 24 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 5
    out: 7
    join_shards { elems: 16 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 4
    out: 8
    keep_slice { group: 2 elems: 2 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 7
    out: 9
    keep_slice { group: 2 elems: 8 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 6
    out: 10
    keep_slice { group: 2 elems: 2 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: [ 8, 9, 10 ]
    out: 11
    gather_copy_in { elems: 12 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 11
    out: 11
    all_gather { group: 2 elems_in: 12 elems_out: 24 dtype: FP32 }
  }
  ops {
    stream: 0
    unit: 0
    in: 11
    out: [ 4, 7, 6 ]
    copy_out { elems: 24 dtype: FP32 }
  }
)pb";

// a = 1, 2, 3; w = 10 .. 17 and 20 .. 27; b = 31 .. 34; padding is 0.
const Floats kGathered = {1, 10, 11, 20, 21, 31, 2, 12, 13, 22, 23, 32,
                          3, 14, 15, 24, 25, 33, 0, 16, 17, 26, 27, 34};
const Floats kW = {10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 27};

TEST(Moves, ARanksShardGoesToItsPlaceInItsShardGroup) {
  for (const int rank : {1, 5}) {  // the second of its group in both replicas
    Floats expected(24, -1);
    std::copy(kGathered.begin() + 6, kGathered.begin() + 12, expected.begin() + 6);
    const Floats w = {12, 13, 22, 23};
    EXPECT_EQ(Ops(kGather, rank).Run(0, {{2}, w, {32}})[0], expected) << rank;
  }
}

TEST(Moves, ColumnsAreJoinedToRows) {
  const PreparedOps ops = Ops(kGather, 0);
  const std::vector<Floats> parameters = ops.Run(2, {kGathered});
  EXPECT_EQ(parameters[0], (Floats{1, 2, 3, 0}));
  EXPECT_EQ(parameters[1],
            (Floats{10, 11, 20, 21, 12, 13, 22, 23, 14, 15, 24, 25, 16, 17, 26, 27}));
  EXPECT_EQ(parameters[2], (Floats{31, 32, 33, 34}));
  EXPECT_EQ(ops.Run(3, {parameters[1]})[0], kW);
}

// A half of each tensor to each of two neighbours; then the halves make the tensors again.
TEST(Moves, KeptSlicesMakeTheParametersAgain) {
  Floats gathered;
  for (const int rank : {6, 7}) {  // a pair of the second replica
    const PreparedOps ops = Ops(kGather, rank);
    const std::vector<Floats> kept = {ops.Run(4, {{1, 2, 3, 0}})[0], ops.Run(5, {kW})[0],
                                      ops.Run(6, {{31, 32, 33, 34}})[0]};
    const int half = rank % 2;
    EXPECT_EQ(kept[0], (half == 0 ? Floats{1, 2} : Floats{3, 0}));
    EXPECT_EQ(kept[1], Floats(kW.begin() + half * 8, kW.begin() + half * 8 + 8));
    EXPECT_EQ(kept[2], (half == 0 ? Floats{31, 32} : Floats{33, 34}));
    const Floats copied = ops.Run(7, kept)[0];
    ASSERT_EQ(copied.size(), 24u);
    gathered.insert(gathered.end(), copied.begin() + half * 12, copied.begin() + half * 12 + 12);
  }
  EXPECT_EQ(Ops(kGather, 0).Run(9, {gathered}),
            (std::vector<Floats>{{1, 2, 3, 0}, kW, {31, 32, 33, 34}}));
}

constexpr std::string_view kReduce = R"pb(
  ops {
    stream: 0
    out: [ 4, 6, 7 ]
    compute { kernel: 0 }
  }
  ops {
    stream: 0
    unit: 0
    in: 7
    out: 12
    split_gradient { elems: 16 dtype: FP32 parameter: 1 }
  }
  ops {
    stream: 0
    unit: 0
    in: [ 4, 12, 6 ]
    out: 13
    reduce_copy_in {
      elems_in: 23
      elems_out: 24
      from: [ FP32, FP32, FP32 ]
      to: FP32
    }
  }
  ops {
    stream: 0
    unit: 0
    in: 13
    out: 14
    reduce_scatter { group: 0 elems_in: 24 elems_out: 6 dtype: FP32 reduction: AVG }
  }
  ops {
    stream: 0
    unit: 0
    in: 14
    out: 15
    copy_to_host { elems: 1 dtype: FP32 parameter: 0 }
  }
  ops {
    stream: 0
    unit: 0
    in: 14
    in_offsets: 1
    out: 16
    copy_to_host { elems: 4 dtype: FP32 parameter: 1 }
  }
  ops {
    stream: 0
    unit: 0
    in: 14
    in_offsets: 5
    out: 17
    copy_to_host { elems: 1 dtype: FP32 parameter: 2 }
  }
)pb";

TEST(Moves, GradientsAreCutAsParametersAre) {
  const PreparedOps ops = Ops(kReduce, 0);
  ASSERT_TRUE(ops.status().ok()) << ops.status().message();
  const Floats split = ops.Run(1, {kW})[0];
  EXPECT_EQ(split, (Floats{10, 11, 20, 21, 12, 13, 22, 23, 14, 15, 24, 25, 16, 17, 26, 27}));
  EXPECT_EQ(ops.Run(2, {{1, 2, 3}, split, {31, 32, 33, 34}})[0], kGathered);
}

TEST(Moves, AGradientGoesToTheHostWithoutItsPadding) {
  for (const int rank : {0, 3, 4, 7}) {
    const PreparedOps ops = Ops(kReduce, rank);
    ASSERT_TRUE(ops.status().ok()) << ops.status().message();
    const bool has_row = rank % 4 < 3;
    EXPECT_EQ(ops.bytes(15), has_row ? 4 : 0) << rank;
    const Floats reduced = {1, 2, 3, 4, 5, 6};
    EXPECT_EQ(ops.Run(4, {reduced})[0], has_row ? Floats{1} : Floats{});
    EXPECT_EQ(ops.Run(5, {reduced})[0], (Floats{2, 3, 4, 5}));
    EXPECT_EQ(ops.Run(6, {reduced})[0], Floats{6});
  }
}

TEST(Moves, AGradientOfAnotherSizeIsRefused) {
  EXPECT_THAT(Ops(kReduce, 0, 4).status().message(),
              testing::HasSubstr("works on 3 fp32 of buffer 4, which holds 16 bytes"));
}

TEST(Moves, ACopyInForNoGatherIsRefused) {
  EXPECT_THAT(Ops("ops { stream: 0 unit: 0 in: [ 0, 1, 2 ] out: 3 gather_copy_in { elems: 6 dtype: "
                  "FP32 } }",
                  0)
                  .status()
                  .message(),
              testing::HasSubstr("no all_gather fills buffer 3"));
}

// ---- elementwise

// 1 / 3 in bf16, which has 8 bits: 0.333984375 = 171 / 512.
TEST(Moves, DividingRoundsToWhatIsStored) {
  std::vector<uint16_t> one = {0x3f80, 0x4000};
  Launch launch;
  launch.out = {{reinterpret_cast<std::byte*>(one.data()), 4}};
  Divide({2, DType::kBf16, 3}, launch);
  EXPECT_EQ(one, (std::vector<uint16_t>{0x3eab, 0x3f2b}));
}

TEST(Moves, AddingIsInPlaceOfEither) {
  for (const bool into_first : {true, false}) {
    Floats a(3000, 1), b(3000, 2);
    Launch launch;
    for (Floats* f : {&a, &b}) {
      launch.in.push_back({reinterpret_cast<std::byte*>(f->data()), 12000});
    }
    launch.out = {launch.in[into_first ? 0 : 1]};
    Add({3000, DType::kFp32}, launch);
    EXPECT_EQ(into_first ? a : b, Floats(3000, 3));
    EXPECT_EQ(into_first ? b : a, Floats(3000, into_first ? 2 : 1));
  }
}

}  // namespace
}  // namespace foreshard::exec
