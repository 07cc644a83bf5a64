// What happens-before tells of a plan beyond whether it is right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace foreshard::pb {
class Plan;
}

namespace foreshard {

// Waits that could be dropped, each by itself, without any op being free to start earlier: what
// they name has ended anyway, by the order of the stream or communicator, by other waits, or
// because the host has waited for it. A faithful plan has some where the library has them.
struct RedundantWaits {
  std::string waiter;  // "copy_out"; "host (copy_out)" where the host waits before it issues one
  // "all_gather"; "stream gather" where a stream_wait names a stream, "event layers.3" for a
  // record.
  std::string on;
  int64_t count = 0;    // in the segments, each counted once
  std::string example;  // the first one's place
};

struct PlanFacts {
  int64_t ops = 0;  // of the segments, each counted once
  int64_t buffers = 0;
  int64_t kernels = 0;
  int64_t waits = 0;  // of ops for ops and streams, and of the host
  int64_t redundant = 0;
  std::vector<RedundantWaits> redundant_waits;  // by kinds, most frequent first
};

// REQUIRES: CheckPlan(plan) is OK.
PlanFacts AnalyzePlan(const pb::Plan& plan);

// Whether two plans do the same: over all programs and `steady` once more they have the same ops
// (streams, kinds, buffers and what they are told), and wherever two ops use a buffer and one
// of them writes it, both plans have them in the same order, and certain of it alike. When buffers
// are allocated and freed, their sizes and categories may differ, and so may ops that use no
// buffer. REQUIRES: indices are in their tables and waits are for earlier ops, as CheckPlan tests.
bool EquivalentPlans(const pb::Plan& a, const pb::Plan& b);

}  // namespace foreshard
