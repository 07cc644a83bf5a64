// Perfetto's native trace format, as much of it as a timeline needs: named tracks below one
// process, slices, instants and byte counters. Opened by https://ui.perfetto.dev and by
// trace_processor. The wire format of the messages is written by hand; the same calls give the same
// bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/units.h"

namespace foreshard {

// A protobuf message in the making.
class WireMessage {
 public:
  void Varint(int field, uint64_t value);
  void Fixed64(int field, uint64_t value);
  void Bytes(int field, std::string_view value);
  void Message(int field, const WireMessage& value) { Bytes(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Raw(uint64_t value);  // base 128, least significant first
  std::string bytes_;
};

// Times are rounded down to the format's nanoseconds, so that what follows without a gap or overlap
// still does. Events of one track come in time order; slices of one track do not overlap.
class PerfettoTrace {
 public:
  enum class Track : uint64_t {};

  struct Event {
    std::string_view name;
    std::vector<std::pair<std::string_view, std::string>> notes;  // shown when it is selected
    uint64_t starts_flow = 0;                                     // 0 = none; an arrow to ...
    uint64_t ends_flow = 0;                                       // ... the event that ends it
  };

  explicit PerfettoTrace(std::string_view process);

  // Tracks are shown in the order in which they were added.
  Track AddTrack(std::string_view name);
  Track AddByteCounter(std::string_view name);

  void Begin(Track track, SimTime at, const Event& event);
  void End(Track track, SimTime at);
  void Instant(Track track, SimTime at, const Event& event);
  void Count(Track track, SimTime at, int64_t value);

  std::string Take() { return std::move(bytes_); }

 private:
  // Strings that are written once and named by number from then on.
  struct Interned {
    int field;         // in InternedData
    int string_field;  // in its entry
    std::map<std::string, uint64_t, std::less<>> ids;
  };

  WireMessage Descriptor(std::string_view name);
  void WriteDescriptor(const WireMessage& descriptor);
  void WriteNamed(int type, Track track, SimTime at, const Event& event);
  void WriteEvent(SimTime at, const WireMessage& event);
  void WritePacket(WireMessage& packet);
  uint64_t Intern(Interned& table, std::string_view text);

  std::string bytes_;
  WireMessage new_strings_;  // InternedData of the next packet
  Interned names_{2, 2, {}};
  Interned note_names_{3, 2, {}};
  Interned note_values_{29, 2, {}};
  uint64_t tracks_ = 0;
  bool started_ = false;
};

}  // namespace foreshard
