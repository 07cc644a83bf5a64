#include "tools/tolerance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foreshard {
namespace {

using testing::HasSubstr;

TEST(Tolerance, DefaultsAreEqualBytesAtTheSameOpAndNoJudgementOfTime) {
  const Tolerances t = ParseTolerances("peak=0").value();
  EXPECT_TRUE(t.peak.Allows(7, 7));
  EXPECT_FALSE(t.peak.Allows(7, 8));
  EXPECT_FALSE(t.memory.Allows(8, 7));
  EXPECT_TRUE(t.places);
  EXPECT_FALSE(t.time.has_value());
}

TEST(Tolerance, BytesAreAllowedEitherWayUpToTheLimit) {
  const Tolerances t = ParseTolerances("peak=1KiB").value();
  EXPECT_TRUE(t.peak.Allows(5000, 5000 + 1024));
  EXPECT_TRUE(t.peak.Allows(5000, 5000 - 1024));
  EXPECT_FALSE(t.peak.Allows(5000, 5000 + 1025));
}

TEST(Tolerance, PercentIsOfTheFirstFigure) {
  const Tolerances t = ParseTolerances("peak=1%").value();
  EXPECT_TRUE(t.peak.Allows(1000, 1010));
  EXPECT_FALSE(t.peak.Allows(1000, 1011));
  EXPECT_FALSE(t.peak.Allows(0, 1));
  EXPECT_TRUE(t.peak.Allows(0, 0));
}

TEST(Tolerance, MemoryFollowsPeakUnlessItIsGiven) {
  EXPECT_TRUE(ParseTolerances("peak=8").value().memory.Allows(0, 8));
  EXPECT_FALSE(ParseTolerances("peak=8,memory=4").value().memory.Allows(0, 8));
  EXPECT_FALSE(ParseTolerances("memory=4,peak=8").value().memory.Allows(0, 8));
  EXPECT_TRUE(ParseTolerances("places=no,memory=4").value().memory.Allows(0, 4));
  EXPECT_FALSE(ParseTolerances("places=no,memory=4").value().peak.Allows(0, 4));
}

TEST(Tolerance, TimeIsAShareOfTheFirstOrAFactorEitherWay) {
  const Tolerances share = ParseTolerances("time=50%").value();
  EXPECT_TRUE(share.time->Allows(100, 150));
  EXPECT_TRUE(share.time->Allows(100, 50));
  EXPECT_FALSE(share.time->Allows(100, 151));
  const Tolerances factor = ParseTolerances("time=2x").value();
  EXPECT_TRUE(factor.time->Allows(100, 200));
  EXPECT_TRUE(factor.time->Allows(200, 100));
  EXPECT_FALSE(factor.time->Allows(201, 100));
  EXPECT_FALSE(factor.time->Allows(0, 1));
  EXPECT_TRUE(factor.time->Allows(0, 0));
}

TEST(Tolerance, WhatMakesNoSenseIsRefusedWithWhatWould) {
  const struct {
    const char* text;
    const char* found;
    const char* expected;
  } cases[] = {
      {"", "\"\"", "KEY=VALUE with one of peak, memory, places, time"},
      {"peak", "\"peak\"", "KEY=VALUE"},
      {"peak=0,", "\"\"", "KEY=VALUE"},
      {"peek=0", "\"peek\"", "did you mean peak?"},
      {"loss=0", "\"loss\"", "one of peak, memory, places, time"},
      {"peak=", "peak: found \"\"", "bytes (0, 1MiB) or percent (1%)"},
      {"peak=-1", "peak: found \"-1\"", "bytes"},
      {"peak=-1%", "peak: found \"-1%\"", "percent"},
      {"peak=%", "peak: found \"%\"", "percent"},
      {"memory=nan%", "memory: found \"nan%\"", "percent"},
      {"places=maybe", "places: found \"maybe\"", "yes or no"},
      {"time=50", "time: found \"50\"", "percent (50%) or a factor from 1 on (2x)"},
      {"time=0.5x", "time: found \"0.5x\"", "factor from 1 on"},
      {"time=infx", "time: found \"infx\"", "factor"},
      {"peak=0,peak=1", "peak is given twice", ""},
  };
  for (const auto& c : cases) {
    const Status status = ParseTolerances(c.text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(), HasSubstr("--tolerance: "));
    EXPECT_THAT(status.message(), HasSubstr(c.found));
    EXPECT_THAT(status.message(), HasSubstr(c.expected));
  }
}

}  // namespace
}  // namespace foreshard
