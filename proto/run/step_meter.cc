#include "proto/run/step_meter.h"

#include <utility>

namespace foreshard::run {

void StepMeter::OpBegun(const OpInstance&, SimTime now) { begun_ = now; }

void StepMeter::OpIssued(const OpInstance& op, SimTime now) { host_busy_[op.step] += now - begun_; }

void StepMeter::OpStarted(const OpInstance& op, SimTime now) {
  Advance(now);
  const OpRecord& record = program_.op(op.op);
  if (RunsOnCompute(record)) ++computing_;
  if (record.group != kNoGroup) ++communicating_;
}

void StepMeter::OpEnded(const OpInstance& op, SimTime now) {
  Advance(now);
  const OpRecord& record = program_.op(op.op);
  if (record.group != kNoGroup) --communicating_;
  const bool computes = RunsOnCompute(record);
  if (computes) --computing_;
  if (!computes && !RunsOnHost(record)) return;
  current_.phases[record.phase] += now - phase_end_;
  phase_end_ = now;
}

void StepMeter::StepBegun(int32_t step, SimTime) {
  host_busy_.resize(static_cast<size_t>(step) + 1, SimTime(0));
}

void StepMeter::StepEnded(int32_t step, SimTime now) {
  Advance(now);
  current_.duration = now - step_end_;
  current_.host_busy = host_busy_[step];
  steps_.push_back(std::exchange(current_, StepTime{}));
  step_end_ = now;
}

void StepMeter::Advance(SimTime now) {
  const SimTime passed = now - now_;
  now_ = now;
  if (computing_ > 0) current_.compute_busy += passed;
  if (communicating_ == 0) return;
  current_.communication_busy += passed;
  if (computing_ == 0) current_.exposed_communication += passed;
}

bool StepMeter::RunsOnCompute(const OpRecord& record) const {
  return record.stream != kNoStream && program_.is_compute_stream[Index(record.stream)];
}

bool StepMeter::RunsOnHost(const OpRecord& record) const {
  return record.stream != kNoStream && program_.is_host_stream[Index(record.stream)];
}

}  // namespace foreshard::run
