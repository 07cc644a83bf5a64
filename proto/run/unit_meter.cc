#include "proto/run/unit_meter.h"

#include <algorithm>

#include "proto/plan.pb.h"

namespace foreshard::run {

UnitMeter::UnitMeter(const pb::Plan& plan, const Program& program)
    : program_(program), alive_(static_cast<size_t>(plan.units_size())) {
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      source_.push_back(SourceOf(op));
    }
  }
  for (const pb::Buffer& buffer : plan.buffers()) {
    const bool counts = buffer.category() == pb::UNSHARDED_PARAM && buffer.has_unit();
    unit_of_param_.push_back(counts ? buffer.unit() : kNoUnit);
  }
  for (const BufferId buffer : program.resident) {
    const int32_t unit = unit_of_param_[Index(buffer)];
    if (unit != kNoUnit) ++alive_[unit].buffers;
  }
}

UnitMeter::Source UnitMeter::SourceOf(const pb::Op& op) {
  if (!op.has_unit()) return {};
  if (op.has_all_gather()) return {op.unit(), &UnitTime::gather};
  if (op.has_reduce_scatter()) return {op.unit(), &UnitTime::reduce};
  if (op.has_all_reduce()) return {op.unit(), &UnitTime::all_reduce};
  return {};
}

void UnitMeter::OpIssued(const OpInstance& op, SimTime) {
  const Source& source = source_[Index(op.op)];
  if (source.unit != kNoUnit) ++TimeOf(source, op.step).count;
}

void UnitMeter::OpStarted(const OpInstance& op, SimTime now) {
  Advance(now);
  const OpRecord& record = program_.op(op.op);
  if (RunsOnCompute(record)) ++computing_;
  if (record.group != kNoGroup) running_.push_back(op);
}

void UnitMeter::OpEnded(const OpInstance& op, SimTime now) {
  Advance(now);
  const OpRecord& record = program_.op(op.op);
  if (RunsOnCompute(record)) --computing_;
  if (record.group == kNoGroup) return;
  std::erase_if(running_, [&](const OpInstance& o) { return o.sequence == op.sequence; });
}

void UnitMeter::BufferAllocated(BufferId buffer, const OpInstance&, SimTime now) {
  const int32_t unit = unit_of_param_[Index(buffer)];
  if (unit == kNoUnit) return;
  Alive& alive = alive_[unit];
  if (alive.buffers++ == 0) alive.since = now;
}

void UnitMeter::BufferFreed(BufferId buffer, const OpInstance& op, SimTime now) {
  const int32_t unit = unit_of_param_[Index(buffer)];
  if (unit == kNoUnit) return;
  Alive& alive = alive_[unit];
  if (--alive.buffers == 0) steps_[op.step][unit].resident += now - alive.since;
}

void UnitMeter::StepBegun(int32_t step, SimTime now) {
  for (size_t unit = 0; begun_ >= 0 && unit < alive_.size(); ++unit) {
    if (alive_[unit].buffers == 0) continue;
    steps_[begun_][unit].resident += now - alive_[unit].since;
    alive_[unit].since = now;
  }
  begun_ = step;
  steps_.emplace_back(alive_.size());
}

void UnitMeter::StepEnded(int32_t step, SimTime now) {
  Advance(now);
  device_step_ = step + 1;
}

// What runs at the same time as another collective is exposed once: the earliest stands for all.
void UnitMeter::Advance(SimTime now) {
  const SimTime passed = now - now_;
  now_ = now;
  if (passed.count() == 0) return;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Source& source = source_[Index(running_[i].op)];
    if (source.unit == kNoUnit) continue;
    CollectiveTime& time = TimeOf(source, device_step_);
    time.running += passed;
    if (i == 0 && computing_ == 0) time.exposed += passed;
  }
}

CollectiveTime& UnitMeter::TimeOf(const Source& source, int32_t step) {
  return steps_[step][source.unit].*source.time;
}

bool UnitMeter::RunsOnCompute(const OpRecord& record) const {
  return record.stream != kNoStream && program_.is_compute_stream[Index(record.stream)];
}

}  // namespace foreshard::run
