#include "tests/export/trace_reader.h"

#include "proto/base/check.h"

namespace foreshard {
namespace {

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // varint, fixed64
  std::string_view bytes;  // length-delimited
};

class Reader {
 public:
  explicit Reader(ReadTrace& out) : out_(out) {}

  void ReadPackets(std::string_view bytes) {
    for (const Field& field : Fields(bytes)) {
      if (Expect(field.number == 1, "a packet")) ReadPacket(field.bytes);
    }
    for (const auto& [uuid, track] : out_.tracks) {
      Expect(open_[uuid].empty(), "every slice ends");
    }
  }

 private:
  using Table = std::map<uint64_t, std::string>;

  bool Expect(bool holds, const std::string& what) {
    if (!holds) out_.problems.push_back("expected: " + what);
    return holds;
  }

  uint64_t Varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (!Expect(!bytes.empty(), "a varint that ends")) return 0;
      const auto byte = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    Expect(false, "a varint of ten bytes at most");
    return value;
  }

  std::vector<Field> Fields(std::string_view bytes) {
    std::vector<Field> fields;
    while (!bytes.empty()) {
      const uint64_t tag = Varint(bytes);
      Field field{tag >> 3, 0, {}};
      size_t length = 0;
      if ((tag & 7) == 0) {
        field.value = Varint(bytes);
      } else if ((tag & 7) == 1) {
        length = 8;
      } else if (Expect((tag & 7) == 2, "a known wire type")) {
        length = Varint(bytes);
      }
      if (!Expect(length <= bytes.size(), "as many bytes as announced")) return fields;
      field.bytes = bytes.substr(0, length);
      bytes.remove_prefix(length);
      if ((tag & 7) == 1) {
        for (size_t i = 0; i < 8; ++i) {
          field.value |= static_cast<uint64_t>(static_cast<unsigned char>(field.bytes[i])) << 8 * i;
        }
      }
      fields.push_back(field);
    }
    return fields;
  }

  void ReadPacket(std::string_view bytes) {
    const std::vector<Field> fields = Fields(bytes);
    int64_t time = -1;
    bool has_sequence = false;
    uint64_t flags = 0;
    for (const Field& f : fields) {
      if (f.number == 8) time = static_cast<int64_t>(f.value);
      if (f.number == 10) has_sequence = f.value != 0;
      if (f.number == 12) ReadInterned(f.bytes);
      if (f.number == 13) flags = f.value;
    }
    Expect(has_sequence && flags == (first_ ? 1 : 2), "a sequence, cleared by its first packet");
    first_ = false;
    for (const Field& f : fields) {
      if (f.number == 60) ReadDescriptor(f.bytes);
      if (f.number == 11 && Expect(time >= 0, "a timestamp")) ReadEvent(f.bytes, time);
    }
  }

  void ReadInterned(std::string_view bytes) {
    for (const Field& f : Fields(bytes)) {
      uint64_t id = 0;
      std::string text;
      for (const Field& part : Fields(f.bytes)) {
        if (part.number == 1) id = part.value;
        if (part.number == 2) text = part.bytes;
      }
      Expect(f.number == 2 || f.number == 3 || f.number == 29, "names of events or notes");
      Expect(id != 0 && strings_[f.number].emplace(id, text).second, "a new number of a string");
    }
  }

  std::string String(uint64_t table, uint64_t id) {
    const auto found = strings_[table].find(id);
    return Expect(found != strings_[table].end(), "a known string") ? found->second : "";
  }

  void ReadDescriptor(std::string_view bytes) {
    TraceTrack track;
    uint64_t uuid = 0;
    for (const Field& f : Fields(bytes)) {
      if (f.number == 1) uuid = f.value;
      if (f.number == 2) track.name = f.bytes;
      if (f.number == 3) track.is_process = true;
      if (f.number == 5) track.parent = f.value;
      if (f.number == 8) track.is_counter = true;
    }
    Expect(!track.name.empty(), "a name of every track");
    Expect(track.is_process || out_.tracks.contains(track.parent), "a known parent");
    Expect(uuid != 0 && out_.tracks.emplace(uuid, track).second, "a new track");
  }

  void ReadEvent(std::string_view bytes, int64_t time) {
    TraceSlice slice;
    slice.begin = time;
    uint64_t type = 0;
    uint64_t uuid = 0;
    int64_t count = 0;
    for (const Field& f : Fields(bytes)) {
      if (f.number == 4) ReadNote(f.bytes, slice);
      if (f.number == 9) type = f.value;
      if (f.number == 10) slice.name = String(2, f.value);
      if (f.number == 11) uuid = f.value;
      if (f.number == 30) count = static_cast<int64_t>(f.value);
      if (f.number == 47) slice.starts_flows.push_back(f.value);
      if (f.number == 48) slice.ends_flows.push_back(f.value);
    }
    if (!Expect(out_.tracks.contains(uuid), "a known track")) return;
    TraceTrack& track = out_.tracks[uuid];
    Expect(time >= track.last, "events of track " + track.name + " in order of time");
    track.last = time;
    Expect(track.is_counter == (type == 4), "counts on counters only");
    if (type == 4) track.counts.emplace_back(time, count);
    if (type == 3) track.instants.push_back(slice);
    if (type == 1) {
      Expect(open_[uuid].empty(), "no slice begins inside another on " + track.name);
      open_[uuid].push_back(slice);
    }
    if (type == 2 && Expect(!open_[uuid].empty(), "a begin before each end")) {
      track.slices.push_back(open_[uuid].back());
      track.slices.back().end = time;
      open_[uuid].pop_back();
    }
  }

  void ReadNote(std::string_view bytes, TraceSlice& slice) {
    std::string name;
    std::string value;
    for (const Field& f : Fields(bytes)) {
      if (f.number == 1) name = String(3, f.value);
      if (f.number == 17) value = String(29, f.value);
    }
    slice.notes[name] = value;
  }

  ReadTrace& out_;
  std::map<uint64_t, Table> strings_;  // by field of InternedData
  std::map<uint64_t, std::vector<TraceSlice>> open_;
  bool first_ = true;
};

}  // namespace

const TraceTrack& ReadTrace::Track(std::string_view name) const {
  for (const auto& [uuid, track] : tracks) {
    if (track.name == name) return track;
  }
  CHECK(false) << "no track " << name;
  return tracks.begin()->second;
}

ReadTrace Read(std::string_view bytes) {
  ReadTrace trace;
  Reader(trace).ReadPackets(bytes);
  return trace;
}

}  // namespace foreshard
