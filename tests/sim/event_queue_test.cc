#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

namespace foreshard::sim {
namespace {

TEST(EventQueue, EmptyQueueGivesNothingAndStaysAtZero) {
  EventQueue<int> queue;
  EXPECT_EQ(queue.Pop(), std::nullopt);
  EXPECT_EQ(queue.now(), SimTime(0));
}

TEST(EventQueue, EarlierTimesComeFirst) {
  EventQueue<std::string_view> queue;
  queue.At(SimTime(7), "late");
  queue.At(SimTime(3), "early");
  EXPECT_EQ(queue.Pop(), "early");
  EXPECT_EQ(queue.now(), SimTime(3));
  EXPECT_EQ(queue.Pop(), "late");
  EXPECT_EQ(queue.now(), SimTime(7));
}

TEST(EventQueue, EqualTimesComeInOrderAdded) {
  EventQueue<int> queue;
  for (int i = 0; i < 100; ++i) queue.At(SimTime(5), i);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.Pop(), i);
}

TEST(EventQueue, AnEventMayBeAddedAtTheCurrentTime) {
  EventQueue<int> queue;
  queue.At(SimTime(5), 1);
  queue.Pop();
  queue.At(SimTime(5), 2);
  EXPECT_EQ(queue.Pop(), 2);
}

TEST(EventQueue, RandomTimesComeOutSortedAndStable) {
  std::mt19937 random(1);
  EventQueue<std::pair<int, int>> queue;  // time, order added
  for (int i = 0; i < 1000; ++i) {
    const int when = static_cast<int>(random() % 50);
    queue.At(SimTime(when), {when, i});
  }
  std::pair<int, int> last{-1, -1};
  while (const auto event = queue.Pop()) {
    EXPECT_LT(last, *event);
    last = *event;
  }
}

TEST(EventQueueDeathTest, AnEventInThePastIsABug) {
  EventQueue<int> queue;
  queue.At(SimTime(5), 1);
  queue.Pop();
  EXPECT_DEATH(queue.At(SimTime(4), 2), "in the past");
}

}  // namespace
}  // namespace foreshard::sim
