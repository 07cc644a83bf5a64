#include "tools/export/perfetto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/export/trace_reader.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(WireMessage, EncodesAsProtobufDoes) {
  WireMessage inner;
  inner.Varint(1, 150);  // the example of protobuf's own documentation
  EXPECT_EQ(inner.bytes(), "\x08\x96\x01");
  WireMessage outer;
  outer.Message(3, inner);
  outer.Bytes(2, "testing");
  outer.Fixed64(16, 0x0102030405060708);  // two bytes of tag
  EXPECT_EQ(outer.bytes(), std::string("\x1a\x03\x08\x96\x01\x12\x07testing"
                                       "\x81\x01\x08\x07\x06\x05\x04\x03\x02\x01"));
}

TEST(WireMessage, NegativeNumbersTakeTenBytes) {
  WireMessage message;
  message.Varint(1, static_cast<uint64_t>(int64_t{-1}));
  EXPECT_EQ(message.bytes(), std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
}

TEST(PerfettoTrace, ReadsBack) {
  PerfettoTrace trace("rank 0");
  const auto stream = trace.AddTrack("stream");
  const auto bytes = trace.AddByteCounter("bytes");
  trace.Count(bytes, SimTime(0), 5'000'000'000);
  trace.Begin(stream, SimTime(1999), {"gather", {{"unit", "a"}, {"phase", "forward"}}, 7});
  trace.End(stream, SimTime(3000));
  trace.Instant(stream, SimTime(3001), {"free", {{"unit", "a"}}, 0, 7});
  trace.Count(bytes, SimTime(4000), 0);
  const ReadTrace read = Read(trace.Take());
  EXPECT_THAT(read.problems, IsEmpty());
  ASSERT_EQ(read.tracks.size(), 3u);
  EXPECT_TRUE(read.Track("rank 0").is_process);
  EXPECT_THAT(read.Track("bytes").counts, ElementsAre(Pair(0, 5'000'000'000), Pair(4, 0)));
  ASSERT_EQ(read.Track("stream").slices.size(), 1u);
  const TraceSlice& slice = read.Track("stream").slices[0];
  EXPECT_EQ(slice.name, "gather");
  EXPECT_EQ(slice.begin, 1);  // rounded down
  EXPECT_EQ(slice.end, 3);
  EXPECT_THAT(slice.notes, ElementsAre(Pair("phase", "forward"), Pair("unit", "a")));
  EXPECT_THAT(slice.starts_flows, ElementsAre(7u));
  ASSERT_EQ(read.Track("stream").instants.size(), 1u);
  EXPECT_THAT(read.Track("stream").instants[0].ends_flows, ElementsAre(7u));
}

TEST(TraceReader, FindsWhatIsWrong) {
  PerfettoTrace trace("rank 0");
  const auto stream = trace.AddTrack("stream");
  trace.Begin(stream, SimTime(5000), {"a", {}});
  trace.Begin(stream, SimTime(4000), {"b", {}});
  EXPECT_THAT(Read(trace.Take()).problems, testing::SizeIs(3));  // order, overlap, no end
  EXPECT_THAT(Read("\x0a\x05\x08").problems, testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace foreshard
