// Reads back what tools/export writes, knowing nothing of the writer: a walk over protobuf's wire
// format and the field numbers that Perfetto publishes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace foreshard {

struct TraceSlice {
  int64_t begin = 0;  // nanoseconds
  int64_t end = 0;
  std::string name;
  std::map<std::string, std::string> notes;
  std::vector<uint64_t> starts_flows;
  std::vector<uint64_t> ends_flows;
};

struct TraceTrack {
  std::string name;
  uint64_t parent = 0;
  bool is_process = false;
  bool is_counter = false;
  std::vector<TraceSlice> slices;    // in file order
  std::vector<TraceSlice> instants;  // begin only
  std::vector<std::pair<int64_t, int64_t>> counts;
  int64_t last = 0;  // time of the last event
};

struct ReadTrace {
  std::map<uint64_t, TraceTrack> tracks;
  // What breaks the rules: events out of order on a track, ends without a begin, overlapping
  // slices, strings without a name, unknown tracks or fields, bytes that are no protobuf.
  std::vector<std::string> problems;

  // The track of that name. REQUIRES: there is one.
  const TraceTrack& Track(std::string_view name) const;
};

ReadTrace Read(std::string_view bytes);

}  // namespace foreshard
