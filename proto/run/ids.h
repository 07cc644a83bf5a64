// Typed positions in the tables of a compiled plan, so that two swapped arguments do not compile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foreshard::run {

enum class OpId : int32_t {};      // over all segments: segments one after the other
enum class StreamId : int32_t {};  // kNoStream for ops that only the host carries out
enum class GroupId : int32_t {};   // kNoGroup for ops that are no collectives
enum class EventId : int32_t {};   // kNoEvent for ops that record none
enum class BufferId : int32_t {};
enum class SegmentId : int32_t {};
enum class ProgramId : int32_t {};

inline constexpr StreamId kNoStream{-1};
inline constexpr GroupId kNoGroup{-1};
inline constexpr EventId kNoEvent{-1};

template <typename Id>
constexpr size_t Index(Id id) {
  return static_cast<size_t>(id);
}

}  // namespace foreshard::run
