// What is alive as a plan's ops are issued, on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/plan.pb.h"
#include "tests/golden/golden_record.h"

namespace foreshard::golden {

struct Snapshot {
  Alive alive;        // of the managed categories; empty for whole models, which list none
  int64_t total = 0;  // of the recorded categories
};

class AliveWalk {
 public:
  AliveWalk(const pb::Plan& plan, const PlanRecordOptions& options);

  // An op's allocations; then what settles and its frees, of which partial sums that an earlier
  // micro-batch has left come last, as do flat gradients that autograd has made.
  void Allocate(const pb::Op& op, int micro_batch);
  void Free(const pb::Op& op, int micro_batch);
  void FreeLate(const pb::Op& op, int micro_batch);

  const Snapshot& now() const { return now_; }

 private:
  bool FreesLate(const pb::Op& op, int32_t buffer, int micro_batch) const;
  void Count(int32_t buffer, int sign);

  const pb::Plan& plan_;
  bool by_holder_;
  std::vector<int64_t> bytes_;            // by buffer, on the rank
  std::vector<pb::Category> categories_;  // that each buffer counts as now
  std::vector<int> micro_batch_;          // that has allocated each buffer
  Snapshot now_;
};

}  // namespace foreshard::golden
