#include "proto/run/memory_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace foreshard::run {
namespace {

using ::testing::ElementsAre;

// Classes: 0 managed, 1 not. Buffers: 0 of 10, 1 of 20, 2 of 40 (class 1), 3 of 5 (resident).
run::MemoryReplay MakeReplay() {
  std::array<bool, run::kMemoryClasses> managed{};
  managed[0] = true;
  return run::MemoryReplay({{Bytes(10), 0}, {Bytes(20), 0}, {Bytes(40), 1}, {Bytes(5), 0}}, managed,
                           {3});
}

TEST(MemoryReplay, ResidentBuffersAreAliveFromTheStart) {
  const run::MemoryReplay replay = MakeReplay();
  EXPECT_EQ(replay.alive_bytes(), Bytes(5));
  EXPECT_EQ(replay.peak().bytes, Bytes(5));
  EXPECT_EQ(replay.peak().op, run::kNoOp);
  EXPECT_THAT(replay.AliveAtPeak(), ElementsAre(3));
}

TEST(MemoryReplay, ThePeakIsTheFirstStrictMaximum) {
  run::MemoryReplay replay = MakeReplay();
  replay.BeginPhase(0);
  replay.Allocate(1, 100);  // 25
  replay.Free(1);           // 5
  replay.Allocate(1, 101);  // 25 again
  replay.Finish();
  EXPECT_EQ(replay.phases()[0].peak.bytes, Bytes(25));
  EXPECT_EQ(replay.phases()[0].peak.op, 100);
}

TEST(MemoryReplay, ManagedBytesPeakOnTheirOwn) {
  run::MemoryReplay replay = MakeReplay();
  replay.BeginPhase(0);
  replay.Allocate(1, 100);  // 25, managed 25
  replay.Free(1);
  replay.Allocate(2, 101);  // 45, managed 5
  replay.Allocate(0, 102);  // 55, managed 15
  const run::PhaseWatermarks& phase = replay.phases()[0];
  EXPECT_EQ(phase.peak.bytes, Bytes(55));
  EXPECT_EQ(phase.peak.op, 102);
  EXPECT_EQ(phase.peak.by_class[0], Bytes(15));
  EXPECT_EQ(phase.peak.by_class[1], Bytes(40));
  EXPECT_EQ(phase.managed_peak.bytes, Bytes(25));
  EXPECT_EQ(phase.managed_peak.op, 100);
}

TEST(MemoryReplay, APhaseStartsWithWhatTheOneBeforeLeft) {
  run::MemoryReplay replay = MakeReplay();
  replay.BeginPhase(7);
  replay.Allocate(2, 100);
  replay.BeginPhase(8);
  replay.Free(2);
  replay.Finish();
  ASSERT_EQ(replay.phases().size(), 2u);
  EXPECT_EQ(replay.phases()[0].key, 7);
  EXPECT_EQ(replay.phases()[0].start, Bytes(5));
  EXPECT_EQ(replay.phases()[0].end, Bytes(45));
  EXPECT_EQ(replay.phases()[0].end_by_class[1], Bytes(40));
  EXPECT_EQ(replay.phases()[1].start, Bytes(45));
  EXPECT_EQ(replay.phases()[1].peak.bytes, Bytes(45));
  EXPECT_EQ(replay.phases()[1].peak.op, run::kNoOp);
  EXPECT_EQ(replay.phases()[1].end, Bytes(5));
}

// Against a replay that keeps the whole set at every moment.
TEST(MemoryReplay, RandomRunsAgreeWithKeepingEverything) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<run::ReplayBuffer> buffers;
    for (int i = 0; i < 12; ++i) buffers.push_back({Bytes(static_cast<int64_t>(random() % 5)), 0});
    run::MemoryReplay replay(buffers, {}, {0, 1});
    std::vector<bool> alive(buffers.size(), false);
    alive[0] = alive[1] = true;
    auto total = [&] {
      int64_t sum = 0;
      for (size_t i = 0; i < alive.size(); ++i) sum += alive[i] ? buffers[i].bytes.count() : 0;
      return sum;
    };
    std::vector<bool> at_peak = alive;
    int64_t peak = total();
    for (int i = 0; i < 100; ++i) {
      const int buffer = static_cast<int>(random() % buffers.size());
      if (alive[buffer]) {
        replay.Free(buffer);
      } else {
        replay.Allocate(buffer, i);
      }
      alive[buffer] = !alive[buffer];
      if (total() > peak) {
        peak = total();
        at_peak = alive;
      }
    }
    std::vector<int32_t> expected;
    for (size_t i = 0; i < at_peak.size(); ++i) {
      if (at_peak[i]) expected.push_back(static_cast<int32_t>(i));
    }
    ASSERT_EQ(replay.peak().bytes, Bytes(peak)) << "seed " << seed;
    ASSERT_EQ(replay.alive_bytes(), Bytes(total())) << "seed " << seed;
    ASSERT_EQ(replay.AliveAtPeak(), expected) << "seed " << seed;
  }
}

TEST(MemoryReplayDeathTest, AllocatingTwiceAndFreeingWhatIsGoneAreBugs) {
  run::MemoryReplay replay = MakeReplay();
  EXPECT_DEATH(replay.Allocate(3, 1), "allocated twice");
  EXPECT_DEATH(replay.Free(0), "not alive");
}

}  // namespace
}  // namespace foreshard::run
