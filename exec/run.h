// The executor's front door: runs a plan for real on the ranks of one backend and reports what it
// measured, in the message that a simulator fills with what it predicts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exec/data.h"
#include "exec/device.h"
#include "exec/failure.h"
#include "exec/weights.h"
#include "proto/base/dtype.h"
#include "proto/base/status.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"

namespace foreshard::exec {

// What a step came to, over all ranks.
struct StepResult {
  int64_t step = 0;
  std::vector<double> losses;  // by micro-batch, each the mean over the ranks; empty without a loss
  double gradient_norm = 0;    // of all trainable parameters together; 0 without an optimizer
  bool has_gradient_norm = false;
};

struct RunOptions {
  int steps = 3;  // at least 1: each program once, then `steady` again and again
  uint64_t seed = 0;
  int report_rank = 0;  // whose memory and times the report shows in full
  bool keeps_weights = false;
  bool keeps_gradients = false;
  // Called in order from the thread that called Run.
  std::function<void(const StepResult&)> on_step;
  bool keeps_timelines = false;  // of one step of each program, of every rank
};

// A whole tensor put together from the ranks' shards, row-major.
struct NamedTensor {
  std::string path;
  DType dtype = DType::kFp32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

struct RunOutcome {
  pb::Report report;
  std::vector<StepResult> steps;
  std::vector<NamedTensor> weights;     // after the last step, in the plan's order
  std::vector<NamedTensor> gradients;   // of the last step, trainable parameters
  std::vector<pb::Timeline> timelines;  // by rank
};

// REQUIRES: CheckPlan(plan) is OK; the sources and the backend were made for the plan, the backend
// with `failure`. Errors: kInvalidPlan when an op is given what it cannot use, kUnavailable when
// there is too little memory, else the first cause that ended the run; everything has been joined.
StatusOr<RunOutcome> RunOn(Backend& backend, FailureFlag& failure, const pb::Plan& plan,
                           const WeightSource& weights, const DataSource& data,
                           const RunOptions& options);

// The same on CPU threads of this process. `poisons`: memory is filled with NaNs whenever it gets
// or loses an owner, so that a read of what nobody wrote shows.
StatusOr<RunOutcome> RunOnCpu(const pb::Plan& plan, const WeightSource& weights,
                              const DataSource& data, bool poisons, const RunOptions& options);

}  // namespace foreshard::exec
