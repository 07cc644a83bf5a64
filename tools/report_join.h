// Two reports of one plan, joined by the identity of ops: what each says of every peak, of memory
// after every op and of time, and whether they are as close as asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/status.h"
#include "proto/report.pb.h"
#include "tools/tolerance.h"

namespace foreshard {

struct CategoryPair {
  pb::Category category = pb::CATEGORY_UNSPECIFIED;
  int64_t a = 0;
  int64_t b = 0;
};

// What both reports sum up at one moment.
struct MomentPair {
  std::string where;   // "whole", "steady backward", "rank 2"
  std::string moment;  // "peak", "managed peak", "end"
  bool in_a = true;    // else `a` is 0 and means nothing, likewise `b`
  bool in_b = true;
  int64_t a = 0;
  int64_t b = 0;
  std::vector<CategoryPair> categories;  // those that either holds
  std::optional<pb::OpRef> at_a;         // of peaks that an op reached
  std::optional<pb::OpRef> at_b;
  bool same_place = true;
  bool within = true;  // bytes only
};

// Where running bytes differ, and what the op itself did there.
struct Parting {
  int64_t index = -1;                 // in the timelines; -1 = before the first op
  pb::OpRef op;                       // of the first report
  std::string moment;                 // "resident", "allocated", "settled" or "freed"
  std::vector<CategoryPair> running;  // those that differ
  std::vector<CategoryPair> changes;  // by this op, at this moment, in either
};

struct MemoryJoin {
  int64_t ops = 0;
  int64_t equal = 0;             // same running bytes of each category at each of the three moments
  int64_t unequal_changes = 0;   // ops that do something else to memory themselves
  int64_t beyond = 0;            // ops after which the tolerance is exceeded, and the start
  std::optional<Parting> first;  // difference of any size
};

struct TimePair {
  std::string name;
  int64_t ops = 0;
  int64_t a_ps = 0;
  int64_t b_ps = 0;
  bool judged = false;
  bool within = true;
};

struct OpTimePair {
  pb::OpRef op;  // of the first report
  int64_t a_ps = 0;
  int64_t b_ps = 0;
};

// Of the last program that the timelines list: a steady step.
struct TimeJoin {
  std::string program;
  TimePair step;
  std::vector<TimePair> kinds;    // longest first: kernels by name, other ops by kind
  std::vector<TimePair> streams;  // in the plan's order
  std::vector<OpTimePair> ops;    // those that differ most, at most ten
};

struct Verdict {
  std::string tolerance;  // its key
  std::string limit;      // as given
  bool judged = true;
  bool within = true;
  int64_t compared = 0;
  int64_t beyond = 0;
};

struct ReportJoin {
  std::vector<std::string> programs;  // that the timelines list, in their order
  std::vector<MomentPair> moments;
  MemoryJoin memory;
  TimeJoin time;
  std::vector<Verdict> verdicts;  // one for each key of the tolerances
  bool within = true;
};

struct NamedReport {
  std::string name;  // of its file, for errors
  const pb::Report& report;
};

// Errors: kInvalidInput when a report lacks what is joined, kInvalidArgument when the two are of
// different plans or ranks.
StatusOr<ReportJoin> JoinReports(const NamedReport& a, const NamedReport& b,
                                 const Tolerances& tolerances);

// kOk when the reports are of one plan and rank, and their timelines list the same ops.
Status CheckJoinable(const NamedReport& a, const NamedReport& b);

// A row by the names of its timeline. REQUIRES: the row names what the timeline lists.
pb::OpRef Refer(const pb::Timeline& timeline, const pb::TimelineOp& row);

// The three parts. REQUIRES: CheckJoinable.
std::vector<MomentPair> JoinMoments(const pb::Report& a, const pb::Report& b,
                                    const ByteTolerance& tolerance);
MemoryJoin JoinMemory(const pb::Timeline& a, const pb::Timeline& b, const ByteTolerance& tolerance);
TimeJoin JoinTime(const pb::Report& a, const pb::Report& b,
                  const std::optional<TimeTolerance>& tolerance);

}  // namespace foreshard
