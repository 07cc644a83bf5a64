#include "tools/export/perfetto.h"

namespace foreshard {
namespace {

// Field numbers of perfetto/protos/perfetto/trace.
constexpr int kTracePacket = 1;
namespace packet {
constexpr int kTimestamp = 8;
constexpr int kSequenceId = 10;
constexpr int kTrackEvent = 11;
constexpr int kInternedData = 12;
constexpr int kSequenceFlags = 13;
constexpr int kTrackDescriptor = 60;
}  // namespace packet
namespace descriptor {
constexpr int kUuid = 1;
constexpr int kName = 2;
constexpr int kProcess = 3;
constexpr int kParentUuid = 5;
constexpr int kCounter = 8;
constexpr int kChildOrdering = 11;
constexpr int kSiblingOrderRank = 12;
constexpr int kProcessPid = 1;
constexpr int kProcessName = 6;
constexpr int kCounterUnit = 3;
}  // namespace descriptor
namespace event {
constexpr int kDebugAnnotations = 4;
constexpr int kType = 9;
constexpr int kNameIid = 10;
constexpr int kTrackUuid = 11;
constexpr int kCounterValue = 30;
constexpr int kFlowIds = 47;
constexpr int kTerminatingFlowIds = 48;
constexpr int kNoteNameIid = 1;
constexpr int kNoteStringIid = 17;
}  // namespace event

constexpr int kSliceBegin = 1;
constexpr int kSliceEnd = 2;
constexpr int kInstant = 3;
constexpr int kCounter = 4;
constexpr uint64_t kUnitSizeBytes = 3;
constexpr uint64_t kExplicitOrdering = 3;
constexpr uint64_t kStateCleared = 1;
constexpr uint64_t kNeedsState = 2;
constexpr uint64_t kSequence = 1;
constexpr uint64_t kProcessTrack = 1;

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2 };

uint64_t Tag(int field, WireType type) { return static_cast<uint64_t>(field) << 3 | type; }

uint64_t Nanoseconds(SimTime time) { return static_cast<uint64_t>(time.count() / 1000); }

}  // namespace

void WireMessage::Raw(uint64_t value) {
  while (value >= 0x80) {
    bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    value >>= 7;
  }
  bytes_ += static_cast<char>(value);
}

void WireMessage::Varint(int field, uint64_t value) {
  Raw(Tag(field, kVarint));
  Raw(value);
}

void WireMessage::Fixed64(int field, uint64_t value) {
  Raw(Tag(field, kFixed64));
  for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift);
}

void WireMessage::Bytes(int field, std::string_view value) {
  Raw(Tag(field, kLengthDelimited));
  Raw(value.size());
  bytes_ += value;
}

PerfettoTrace::PerfettoTrace(std::string_view process) {
  WireMessage details;
  details.Varint(descriptor::kProcessPid, 1);
  details.Bytes(descriptor::kProcessName, process);
  WireMessage track;
  tracks_ = kProcessTrack;
  track.Varint(descriptor::kUuid, kProcessTrack);
  track.Bytes(descriptor::kName, process);
  track.Message(descriptor::kProcess, details);
  track.Varint(descriptor::kChildOrdering, kExplicitOrdering);
  WriteDescriptor(track);
}

PerfettoTrace::Track PerfettoTrace::AddTrack(std::string_view name) {
  WriteDescriptor(Descriptor(name));
  return Track{tracks_};
}

PerfettoTrace::Track PerfettoTrace::AddByteCounter(std::string_view name) {
  WireMessage counter;
  counter.Varint(descriptor::kCounterUnit, kUnitSizeBytes);
  WireMessage track = Descriptor(name);
  track.Message(descriptor::kCounter, counter);
  WriteDescriptor(track);
  return Track{tracks_};
}

void PerfettoTrace::Begin(Track track, SimTime at, const Event& event) {
  WriteNamed(kSliceBegin, track, at, event);
}

void PerfettoTrace::End(Track track, SimTime at) {
  WireMessage end;
  end.Varint(event::kType, kSliceEnd);
  end.Varint(event::kTrackUuid, static_cast<uint64_t>(track));
  WriteEvent(at, end);
}

void PerfettoTrace::Instant(Track track, SimTime at, const Event& event) {
  WriteNamed(kInstant, track, at, event);
}

void PerfettoTrace::Count(Track track, SimTime at, int64_t value) {
  WireMessage count;
  count.Varint(event::kType, kCounter);
  count.Varint(event::kTrackUuid, static_cast<uint64_t>(track));
  count.Varint(event::kCounterValue, static_cast<uint64_t>(value));
  WriteEvent(at, count);
}

WireMessage PerfettoTrace::Descriptor(std::string_view name) {
  ++tracks_;
  WireMessage track;
  track.Varint(descriptor::kUuid, tracks_);
  track.Bytes(descriptor::kName, name);
  track.Varint(descriptor::kParentUuid, kProcessTrack);
  track.Varint(descriptor::kSiblingOrderRank, tracks_);
  return track;
}

void PerfettoTrace::WriteDescriptor(const WireMessage& descriptor) {
  WireMessage out;
  out.Message(packet::kTrackDescriptor, descriptor);
  WritePacket(out);
}

void PerfettoTrace::WriteNamed(int type, Track track, SimTime at, const Event& what) {
  WireMessage out;
  out.Varint(event::kType, static_cast<uint64_t>(type));
  out.Varint(event::kTrackUuid, static_cast<uint64_t>(track));
  out.Varint(event::kNameIid, Intern(names_, what.name));
  for (const auto& [name, value] : what.notes) {
    WireMessage note;
    note.Varint(event::kNoteNameIid, Intern(note_names_, name));
    note.Varint(event::kNoteStringIid, Intern(note_values_, value));
    out.Message(event::kDebugAnnotations, note);
  }
  if (what.starts_flow != 0) out.Fixed64(event::kFlowIds, what.starts_flow);
  if (what.ends_flow != 0) out.Fixed64(event::kTerminatingFlowIds, what.ends_flow);
  WriteEvent(at, out);
}

void PerfettoTrace::WriteEvent(SimTime at, const WireMessage& event) {
  WireMessage out;
  out.Varint(packet::kTimestamp, Nanoseconds(at));
  out.Message(packet::kTrackEvent, event);
  WritePacket(out);
}

void PerfettoTrace::WritePacket(WireMessage& out) {
  out.Varint(packet::kSequenceId, kSequence);
  out.Varint(packet::kSequenceFlags, started_ ? kNeedsState : kStateCleared);
  started_ = true;
  if (!new_strings_.bytes().empty()) out.Message(packet::kInternedData, new_strings_);
  new_strings_ = WireMessage();
  WireMessage framed;
  framed.Message(kTracePacket, out);
  bytes_ += framed.bytes();
}

uint64_t PerfettoTrace::Intern(Interned& table, std::string_view text) {
  if (const auto known = table.ids.find(text); known != table.ids.end()) return known->second;
  const uint64_t id = table.ids.size() + 1;
  table.ids.emplace(text, id);
  WireMessage entry;
  entry.Varint(1, id);
  entry.Bytes(table.string_field, text);
  new_strings_.Message(table.field, entry);
  return id;
}

}  // namespace foreshard
