#include "proto/base/units_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace foreshard {
namespace {

using ::testing::HasSubstr;

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  const struct {
    const char* text;
    int64_t bytes;
  } kCases[] = {
      {"0", 0},
      {"512", 512},
      {"512B", 512},
      {"8kB", 8'000},
      {"8KB", 8'000},
      {"8KiB", 8'192},
      {"80GB", 80'000'000'000},
      {"80GiB", 85'899'345'920},  // 80 * 2^30
      {" 80 GiB ", 85'899'345'920},
      {"1.5MiB", 1'572'864},  // 1.5 * 2^20
      {".5MB", 500'000},
      {"141e9", 141'000'000'000},
      {"1e-3GB", 1'000'000},
      {"2TiB", 2'199'023'255'552},
      {"9223372036854775807", std::numeric_limits<int64_t>::max()},
  };
  for (const auto& c : kCases) {
    const StatusOr<Bytes> bytes = ParseBytes(c.text);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(bytes->count(), c.bytes) << c.text;
  }
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GB", "-1GB", "+1GB", "nan", "inf", "1e999", "80Gb", "80gb",
                           "80GiBs", "8 0GB", "0x10", "1,000", "B8", "1BB", "1kiB"}) {
    const StatusOr<Bytes> bytes = ParseBytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ParseBytes, SaysHowToWriteAnAmbiguousUnit) {
  EXPECT_THAT(ParseBytes("80G").status().message(), HasSubstr("GB (10^9) or GiB (2^30)"));
  EXPECT_THAT(ParseBytes("8k").status().message(), HasSubstr("ends in B"));
}

TEST(ParseBytes, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ParseBytes("9223372036854775808").status().message(), HasSubstr("2^63"));
  EXPECT_THAT(ParseBytes("9000PiB").status().message(), HasSubstr("2^63"));
}

TEST(ParseBandwidth, TellsBitsFromBytes) {
  const struct {
    const char* text;
    double bytes_per_second;
  } kCases[] = {
      {"50GB/s", 50e9},    {"50GBps", 50e9},      {"400Gbps", 50e9},  {"400 Gb/s", 50e9},
      {"400Gbit/s", 50e9}, {"3.35TB/s", 3.35e12}, {"1GiB/s", 0x1p30}, {"900e9", 900e9},
      {"100 B/s", 100},    {"8bps", 1},
  };
  for (const auto& c : kCases) {
    const StatusOr<BytesPerSecond> rate = ParseBandwidth(c.text);
    ASSERT_TRUE(rate.ok()) << rate.status().message();
    EXPECT_DOUBLE_EQ(rate->count(), c.bytes_per_second) << c.text;
  }
}

TEST(ParseBandwidth, RefusesWhatIsNoBandwidth) {
  for (const char* text : {"", "0GB/s", "-1GB/s", "50GB", "50G", "GB/s", "50GB/m", "1e-320Gb/sx",
                           "1e308GB/s", "50 G B/s"}) {
    const StatusOr<BytesPerSecond> rate = ParseBandwidth(text);
    ASSERT_FALSE(rate.ok()) << text;
    EXPECT_EQ(rate.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ParseCount, TakesWholeNumbers) {
  EXPECT_EQ(*ParseCount("0"), 0);
  EXPECT_EQ(*ParseCount(" 2048 "), 2048);
  EXPECT_EQ(*ParseCount("2,048"), 2048);
  EXPECT_EQ(*ParseCount("6,738,415,616"), 6'738'415'616);
  EXPECT_EQ(*ParseCount("4e6"), 4'000'000);
  EXPECT_EQ(*ParseCount("1.5e3"), 1'500);
}

TEST(ParseCount, RefusesTheRest) {
  for (const char* text : {"", "-1", "1.5", "4k", "7B", "1,00", "1,0000", ",100", "1,", "1,000e3",
                           "1,000.0", "1234,567", "1e19", "9223372036854775808", "nan", "1 2"}) {
    EXPECT_FALSE(ParseCount(text).ok()) << text;
  }
}

TEST(FormatBytes, FallsToTheUnitThatFits) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 B");
  EXPECT_EQ(FormatBytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(FormatBytes(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(FormatBytes(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(FormatBytes(Bytes(3 << 20)), "3.00 MiB");
  EXPECT_EQ(FormatBytes(Bytes(int64_t{80} << 30)), "80.00 GiB");
  EXPECT_EQ(FormatBytes(Bytes(int64_t{2048} << 30)), "2048.00 GiB");
  EXPECT_EQ(FormatBytes(Bytes(-(int64_t{5} << 29))), "-2.50 GiB");
}

TEST(FormatBytes, NeverPrints1024OfAUnit) {
  EXPECT_EQ(FormatBytes(Bytes((int64_t{1} << 20) - 1)), "1.00 MiB");
  EXPECT_EQ(FormatBytes(Bytes((int64_t{1} << 30) - 1)), "1.00 GiB");
}

TEST(FormatBytes, HoldsTheExtremes) {
  EXPECT_EQ(FormatBytes(Bytes(std::numeric_limits<int64_t>::max())), "8589934592.00 GiB");
  EXPECT_EQ(FormatBytes(Bytes(std::numeric_limits<int64_t>::min())), "-8589934592.00 GiB");
}

TEST(FormatSeconds, FallsToTheUnitThatFits) {
  EXPECT_EQ(FormatSeconds(Seconds(12.3456)), "12.346 s");
  EXPECT_EQ(FormatSeconds(Seconds(1)), "1.000 s");
  EXPECT_EQ(FormatSeconds(Seconds(0.9999999)), "1.000 s");
  EXPECT_EQ(FormatSeconds(Seconds(0.0125)), "12.500 ms");
  EXPECT_EQ(FormatSeconds(Seconds(0.00035)), "350.000 us");
  EXPECT_EQ(FormatSeconds(SimTime(1'500)), "0.002 us");  // 1.5 ns
  EXPECT_EQ(FormatSeconds(Seconds(0)), "0.000 us");
  EXPECT_EQ(FormatSeconds(Seconds(-0.5)), "-500.000 ms");
}

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1'000), "1,000");
  EXPECT_EQ(FormatCount(6'738'415'616), "6,738,415,616");
  EXPECT_EQ(FormatCount(-123'456), "-123,456");
  EXPECT_EQ(FormatCount(-123), "-123");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatCount, ReadsBack) {
  for (const int64_t n : {int64_t{7}, int64_t{70'553'706'496}}) {
    EXPECT_EQ(*ParseCount(FormatCount(n)), n);
  }
}

}  // namespace
}  // namespace foreshard
