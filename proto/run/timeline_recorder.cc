#include "proto/run/timeline_recorder.h"

#include <algorithm>
#include <utility>

namespace foreshard::run {
namespace {

void FillResident(const pb::Plan& plan, const Program& program, pb::Timeline& timeline) {
  std::map<int, int64_t> sums;
  for (const int buffer : plan.resident()) {
    if (plan.buffers(buffer).host()) continue;
    sums[plan.buffers(buffer).category()] += program.buffer_bytes[buffer].count();
  }
  for (const auto& [category, bytes] : sums) {
    pb::CategoryBytes& entry = *timeline.add_resident();
    entry.set_category(static_cast<pb::Category>(category));
    entry.set_bytes(bytes);
  }
}

}  // namespace

TimelineRecorder::TimelineRecorder(const pb::Plan& plan, const Program& program,
                                   std::vector<int32_t> steps, pb::Timeline& timeline)
    : plan_(plan), program_(program), steps_(std::move(steps)), timeline_(timeline) {
  for (const pb::Buffer& buffer : plan.buffers()) category_.push_back(buffer.category());
}

bool TimelineRecorder::Keeps(int32_t step) const {
  return std::ranges::find(steps_, step) != steps_.end();
}

pb::TimelineOp* TimelineRecorder::Find(const OpInstance& op) {
  const auto found = rows_.find(op.sequence);
  return found == rows_.end() ? nullptr : found->second;
}

int64_t TimelineRecorder::DeviceBytes(int32_t buffer) const {
  return plan_.buffers(buffer).host() ? 0 : program_.buffer_bytes[buffer].count();
}

void TimelineRecorder::Add(pb::Category category, int64_t bytes, Changes& changes) {
  if (bytes == 0) return;
  for (pb::CategoryBytes& entry : changes) {
    if (entry.category() != category) continue;
    entry.set_bytes(entry.bytes() + bytes);
    return;
  }
  pb::CategoryBytes& entry = *changes.Add();
  entry.set_category(category);
  entry.set_bytes(bytes);
}

void TimelineRecorder::StepBegun(int32_t step, SimTime now) {
  if (Keeps(step)) begun_[step] = now;
}

void TimelineRecorder::OpBegun(const OpInstance& instance, SimTime) {
  if (!Keeps(instance.step)) return;
  const pb::Op& op = plan_.segments(static_cast<int>(instance.segment)).ops(instance.position);
  pb::TimelineOp& row = *timeline_.add_ops();
  row.set_program(static_cast<int>(instance.program));
  row.set_segment(static_cast<int>(instance.segment));
  row.set_repetition(instance.repetition);
  row.set_op(instance.position);
  row.set_kind(KindName(op));
  if (op.has_compute()) row.set_kernel(plan_.kernels(op.compute().kernel()).name());
  if (op.has_unit()) row.set_unit(plan_.units(op.unit()).name());
  if (op.has_module()) row.set_module(plan_.modules(op.module()).path());
  row.set_phase(op.phase());
  row.set_stream(op.has_stream() ? op.stream() : -1);
  rows_[instance.sequence] = &row;
}

void TimelineRecorder::OpIssued(const OpInstance& instance, SimTime) {
  pb::TimelineOp* row = Find(instance);
  const pb::Op& op = plan_.segments(static_cast<int>(instance.segment)).ops(instance.position);
  for (const pb::Settle& settle : op.settles()) {
    pb::Category& category = category_[settle.buffer()];
    if (row != nullptr) {
      const int64_t bytes = DeviceBytes(settle.buffer());
      Add(category, -bytes, *row->mutable_settled());
      Add(settle.category(), bytes, *row->mutable_settled());
    }
    category = settle.category();
  }
}

void TimelineRecorder::OpStarted(const OpInstance& op, SimTime now) {
  if (pb::TimelineOp* row = Find(op)) row->set_start_ps((now - begun_[op.step]).count());
}

void TimelineRecorder::OpEnded(const OpInstance& op, SimTime now) {
  if (pb::TimelineOp* row = Find(op)) row->set_end_ps((now - begun_[op.step]).count());
}

void TimelineRecorder::BufferAllocated(BufferId buffer, const OpInstance& op, SimTime) {
  category_[Index(buffer)] = plan_.buffers(static_cast<int>(buffer)).category();
  if (pb::TimelineOp* row = Find(op)) {
    Add(category_[Index(buffer)], DeviceBytes(static_cast<int32_t>(buffer)),
        *row->mutable_allocated());
  }
}

void TimelineRecorder::BufferFreed(BufferId buffer, const OpInstance& op, SimTime) {
  if (pb::TimelineOp* row = Find(op)) {
    Add(category_[Index(buffer)], DeviceBytes(static_cast<int32_t>(buffer)), *row->mutable_freed());
  }
}

pb::Timeline NewTimeline(const pb::Plan& plan, const Program& program, int rank) {
  pb::Timeline timeline;
  timeline.set_rank(rank);
  for (const pb::Program& one : plan.programs()) timeline.add_programs(one.name());
  for (const pb::Segment& one : plan.segments()) timeline.add_segments(one.name());
  for (const pb::Stream& one : plan.streams()) timeline.add_streams(one.name());
  FillResident(plan, program, timeline);
  return timeline;
}

}  // namespace foreshard::run
