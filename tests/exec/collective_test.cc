// What collectives come to, to the bit, on ranks that are threads: which ranks take part, in which
// order they are added, where it is rounded; and that no order in which they meet is a deadlock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "exec/convert.h"
#include "exec/cpu/communicator.h"
#include "exec/cpu/device.h"

namespace foreshard::exec {
namespace {

using Floats = std::vector<float>;

// Some ranks, each with a device of two streams.
class Ranks {
 public:
  Ranks(int ranks, const std::vector<GroupShape>& groups) : world_(ranks, groups, failure_) {
    for (int r = 0; r < ranks; ++r) {
      devices_.push_back(std::make_unique<CpuDevice>(plan_, 2, false, failure_));
      communicators_.push_back(std::make_unique<CpuCommunicator>(r, world_));
    }
  }

  // Queues a collective of one rank; its memory is the caller's until Wait.
  void Queue(int rank, int stream, const PreparedOp& op, std::byte* in, std::byte* out) {
    Launch launch;
    launch.op = &op;
    launch.in = {{in, 0}};
    launch.out = {{out, 0}};
    communicators_[rank]->Run(*devices_[rank], stream, launch);
  }

  Status Wait() {
    for (const auto& device : devices_) {
      for (int stream = 0; stream < 2; ++stream) {
        RETURN_IF_ERROR(device->Synchronize(device->Record(stream)));
      }
    }
    return OkStatus();
  }

 private:
  const PreparedPlan plan_;
  FailureFlag failure_;
  CpuWorld world_;
  std::vector<std::unique_ptr<CpuDevice>> devices_;
  std::vector<std::unique_ptr<CpuCommunicator>> communicators_;
};

PreparedOp Op(const Work& work, int group = 0) {
  PreparedOp op;
  op.work = work;
  op.group = group;
  op.place = "here";
  return op;
}

std::vector<std::byte> Stored(const Floats& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  ConvertElements(values.data(), DType::kFp32, bytes.data(), dtype,
                  static_cast<int64_t>(values.size()));
  return bytes;
}

Floats Loaded(const std::vector<std::byte>& bytes, DType dtype) {
  Floats values(bytes.size() / SizeOf(dtype));
  ConvertElements(bytes.data(), dtype, values.data(), DType::kFp32,
                  static_cast<int64_t>(values.size()));
  return values;
}

// What the ranks of a world hold after a collective of group 0, `out` elements each.
std::vector<Floats> Collect(const GroupShape& group, const Work& work, DType dtype,
                            const std::vector<Floats>& in, size_t out, bool in_place) {
  const int world = static_cast<int>(in.size());
  Ranks ranks(world, {group});
  const PreparedOp op = Op(work);
  std::vector<std::vector<std::byte>> from, to(world);
  for (const Floats& values : in) from.push_back(Stored(values, dtype));
  for (int r = 0; r < world; ++r) {
    to[r].resize(out * SizeOf(dtype));
    ranks.Queue(r, 0, op, from[r].data(), in_place ? from[r].data() : to[r].data());
  }
  EXPECT_TRUE(ranks.Wait().ok());
  std::vector<Floats> result;
  for (int r = 0; r < world; ++r) result.push_back(Loaded(in_place ? from[r] : to[r], dtype));
  return result;
}

TEST(Collectives, AGatherOfNeighboursStaysAmongThem) {
  // Each rank has put its own slice where it belongs.
  const std::vector<Floats> in = {{1, 0}, {0, 2}, {3, 0}, {0, 4}};
  const std::vector<Floats> out =
      Collect({2, 1}, GatherSlices{0, 1, DType::kFp32}, DType::kFp32, in, 2, true);
  EXPECT_EQ(out, (std::vector<Floats>{{1, 2}, {1, 2}, {3, 4}, {3, 4}}));
}

TEST(Collectives, AGatherMayReadAnotherBuffer) {
  const std::vector<Floats> in = {{1, 2}, {3, 4}};
  const std::vector<Floats> out =
      Collect({2, 1}, GatherSlices{0, 2, DType::kFp32, false}, DType::kFp32, in, 4, false);
  EXPECT_EQ(out, (std::vector<Floats>{{1, 2, 3, 4}, {1, 2, 3, 4}}));
}

TEST(Collectives, ReplicasAreThoseAStrideApart) {
  const std::vector<Floats> in = {{1}, {10}, {2}, {20}, {4}, {40}};
  const std::vector<Floats> out =
      Collect({3, 2}, ReduceInPlace{0, 1, DType::kFp32, false}, DType::kFp32, in, 1, true);
  EXPECT_EQ(out, (std::vector<Floats>{{7}, {70}, {7}, {70}, {7}, {70}}));
}

// In another order the small terms would survive or vanish elsewhere: (1 + 2^24) + -2^24 = 0, as
// 2^24 swallows the 1, but 1 + (2^24 + -2^24) = 1.
TEST(Collectives, SumsGoFromTheFirstRankUpwardsInFp32) {
  const float big = 0x1p24F;
  const std::vector<Floats> in = {{1, big}, {big, -big}, {-big, 1}};
  const std::vector<Floats> expected = {{0, 1}, {0, 1}, {0, 1}};
  EXPECT_EQ(Collect({3, 1}, ReduceInPlace{0, 2, DType::kFp32, false}, DType::kFp32, in, 2, true),
            expected);
  // Rank r keeps the r-th of three slices.
  const std::vector<Floats> slices = {{1, big, 5}, {big, -big, 5}, {-big, 1, 5}};
  EXPECT_EQ(Collect({3, 1}, ReduceSlices{0, 1, DType::kFp32}, DType::kFp32, slices, 1, false),
            (std::vector<Floats>{{0}, {1}, {15}}));
}

// bf16 has 8 bits: 256 + 1 is not one of its numbers, and 256 + 1 + 1 = 258 is.
TEST(Collectives, SumsAreRoundedOnce) {
  const std::vector<Floats> in = {{256}, {1}, {1}};
  EXPECT_EQ(Collect({3, 1}, ReduceInPlace{0, 1, DType::kBf16, false}, DType::kBf16, in, 1, true)[0],
            Floats{258});
  // The mean of 2049, 1 and 1 (fp16 has 11 bits: stored, the first is 2048): 2050 / 3 is rounded
  // to a multiple of 1/2.
  const Floats mean = Collect({3, 1}, ReduceInPlace{0, 1, DType::kFp16, true}, DType::kFp16,
                              {{2048}, {1}, {1}}, 1, true)[0];
  EXPECT_EQ(mean, Floats{std::round(2050.0F / 3 * 2) / 2});
}

// In fp16 the sum of the unscaled parts would be infinite.
TEST(Collectives, AFactorIsAppliedBeforeTheSum) {
  const std::vector<Floats> in = {{60000, 1}, {60000, 3}};
  ReduceSlices reduce{0, 1, DType::kFp16};
  reduce.factor = 0.25;
  EXPECT_EQ(Collect({2, 1}, reduce, DType::kFp16, in, 1, false),
            (std::vector<Floats>{{30000}, {1}}));
  // 2^-24 of a term is lost when the factor comes after the sum: 1 + 2^24, times 2^-24.
  const float tiny = 0x1p-24F;
  ReduceSlices scaled{0, 1, DType::kFp32};
  scaled.factor = tiny;
  const std::vector<Floats> large = {{0x1p25F, 0}, {2, 0}};
  EXPECT_EQ(Collect({2, 1}, scaled, DType::kFp32, large, 1, false)[0], Floats{2 + 2 * tiny});
}

TEST(Collectives, EveryElementOfALongAllReduceIsSummedOnce) {
  constexpr int kElems = 5003;  // no number of members divides it, and members have several chunks
  std::vector<Floats> in(3, Floats(kElems));
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < kElems; ++i) in[r][i] = static_cast<float>((i + 1) * (r + 1));
  }
  const std::vector<Floats> out =
      Collect({3, 1}, ReduceInPlace{0, kElems, DType::kFp32, true}, DType::kFp32, in, kElems, true);
  for (const Floats& rank : out) {
    for (int i = 0; i < kElems; ++i) ASSERT_EQ(rank[i], 2 * (i + 1)) << i;
  }
}

TEST(Collectives, AGroupSmallerThanItsElementsAreFew) {
  const std::vector<Floats> in = {{1}, {2}, {3}, {4}};  // three members have nothing to add up
  EXPECT_EQ(Collect({4, 1}, ReduceInPlace{0, 1, DType::kFp32, false}, DType::kFp32, in, 1, true),
            (std::vector<Floats>{{10}, {10}, {10}, {10}}));
}

// ---- order

// Shard groups and replicas overlap in every rank; each rank's streams are in plan order.
TEST(Collectives, OverlappingGroupsDoNotWaitForEachOther) {
  constexpr int kRounds = 50;
  Ranks ranks(6, {{3, 1}, {2, 3}});
  const PreparedOp shard = Op(ReduceInPlace{0, 1, DType::kFp32, false}, 0);
  const PreparedOp replica = Op(ReduceInPlace{1, 1, DType::kFp32, false}, 1);
  std::vector<Floats> shards(6, Floats(kRounds, 1));
  std::vector<Floats> replicas(6, Floats(kRounds, 1));
  for (int r = 5; r >= 0; --r) {
    for (int round = 0; round < kRounds; ++round) {
      auto* a = reinterpret_cast<std::byte*>(&shards[r][round]);
      auto* b = reinterpret_cast<std::byte*>(&replicas[r][round]);
      ranks.Queue(r, 0, shard, a, a);
      ranks.Queue(r, 1, replica, b, b);
    }
  }
  ASSERT_TRUE(ranks.Wait().ok());
  EXPECT_EQ(shards, std::vector<Floats>(6, Floats(kRounds, 3)));
  EXPECT_EQ(replicas, std::vector<Floats>(6, Floats(kRounds, 2)));
}

// One rank comes to them on two streams in one order, the other in the other: were they one
// communicator, either would wait for what the other brings later.
TEST(Collectives, GroupsOfTheSameRanksAreSeparateCommunicators) {
  Ranks ranks(2, {{2, 1}, {2, 1}});
  const PreparedOp first = Op(ReduceInPlace{0, 1, DType::kFp32, false}, 0);
  const PreparedOp second = Op(ReduceInPlace{1, 1, DType::kFp32, false}, 1);
  Floats x = {1, 2, 10, 20};  // by rank and group
  const auto at = [&](int i) { return reinterpret_cast<std::byte*>(&x[i]); };
  ranks.Queue(0, 0, first, at(0), at(0));
  ranks.Queue(1, 0, second, at(3), at(3));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ranks.Queue(0, 1, second, at(1), at(1));
  ranks.Queue(1, 1, first, at(2), at(2));
  ASSERT_TRUE(ranks.Wait().ok());
  EXPECT_EQ(x, (Floats{11, 22, 11, 22}));
}

}  // namespace
}  // namespace foreshard::exec
