// Plans of a few ops whose times are written beside them, for tests of the simulator.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "proto/plan.pb.h"
#include "proto/run/program.h"
#include "sim/compile.h"
#include "sim/cost/cost_model.h"

namespace foreshard::sim {

struct TinyOp {
  int stream = 0;      // -1 = none
  int64_t host = 0;    // picoseconds to issue it
  int64_t device = 0;  // picoseconds to run it
  std::vector<int> waits = {};
  std::vector<int> host_waits = {};
  std::vector<int> on = {};  // makes it a stream wait
  int group = -1;            // makes it an all-gather
  std::vector<int> allocs = {};
  std::vector<int> frees = {};
  int record = -1;  // event, of what is queued on record_stream
  int record_stream = 0;
  std::vector<std::pair<int, int>> event_waits = {};  // event, records looked past
  pb::Phase phase = pb::FORWARD;
  int micro_batch = 0;
};

// Builds a plan segment by segment; stream 0 is the compute stream. The plans have no tables but
// what a schedule needs, so CheckPlan would refuse them.
class TinyPlan {
 public:
  TinyPlan(int streams, int groups, int events = 0);

  // Returns the buffer's index.
  int Buffer(int64_t bytes, pb::Category category = pb::TEMP, bool resident = false);
  void BeginSegment();
  // Adds to the current segment (the first is begun already); returns the index in the segment.
  int Add(const TinyOp& op);
  // Programs are numbered as they are added. `uses` are pairs of segment and repeat count.
  void AddProgram(const std::vector<std::pair<int, int>>& uses);

  const pb::Plan& plan() const { return plan_; }
  run::Program Compiled() const;

 private:
  pb::Plan plan_;
};

// Reads the times that TinyPlan has written into the ops.
class TinyCosts final : public CostModel {
 public:
  OpCost Price(const pb::Op& op) const override;
};

}  // namespace foreshard::sim
