#include "tests/testing/tiny_plan.h"

#include <utility>

namespace foreshard::sim {
namespace {

void Fill(const std::vector<int>& from, google::protobuf::RepeatedField<int32_t>& to) {
  to.Add(from.begin(), from.end());
}

Seconds Picoseconds(int64_t count) { return Seconds(static_cast<double>(count) * 1e-12); }

}  // namespace

TinyPlan::TinyPlan(int streams, int groups, int events) {
  for (int i = 0; i < streams; ++i) {
    plan_.add_streams()->set_role(i == 0 ? pb::Stream::COMPUTE : pb::Stream::GATHER);
  }
  for (int i = 0; i < groups; ++i) plan_.add_groups()->set_size(2);
  for (int i = 0; i < events; ++i) plan_.add_events();
  BeginSegment();
}

int TinyPlan::Buffer(int64_t bytes, pb::Category category, bool resident) {
  const int index = plan_.buffers_size();
  pb::Buffer& buffer = *plan_.add_buffers();
  buffer.set_bytes(bytes);
  buffer.set_category(category);
  if (resident) plan_.add_resident(index);
  return index;
}

void TinyPlan::BeginSegment() { plan_.add_segments(); }

int TinyPlan::Add(const TinyOp& tiny) {
  pb::Segment& segment = *plan_.mutable_segments(plan_.segments_size() - 1);
  pb::Op& op = *segment.add_ops();
  if (tiny.stream >= 0) op.set_stream(tiny.stream);
  // The times travel in fields that a schedule does not read.
  op.set_unit(static_cast<int32_t>(tiny.host));
  op.set_module(static_cast<int32_t>(tiny.device));
  Fill(tiny.waits, *op.mutable_waits());
  Fill(tiny.host_waits, *op.mutable_host_waits());
  Fill(tiny.allocs, *op.mutable_allocs());
  Fill(tiny.frees, *op.mutable_frees());
  if (tiny.record >= 0) {
    op.set_record(tiny.record);
    op.set_record_stream(tiny.record_stream);
  }
  for (const auto& [event, back] : tiny.event_waits) {
    pb::EventWait& wait = *op.add_event_waits();
    wait.set_event(event);
    wait.set_back(back);
  }
  op.set_phase(tiny.phase);
  op.set_micro_batch(tiny.micro_batch);
  if (tiny.group >= 0) {
    op.mutable_all_gather()->set_group(tiny.group);
  } else if (!tiny.on.empty()) {
    Fill(tiny.on, *op.mutable_stream_wait()->mutable_on());
  } else if (tiny.stream >= 0) {
    op.mutable_compute();
  } else {
    op.mutable_release();
  }
  return segment.ops_size() - 1;
}

void TinyPlan::AddProgram(const std::vector<std::pair<int, int>>& uses) {
  pb::Program& program = *plan_.add_programs();
  for (const auto& [segment, repeat] : uses) {
    pb::SegmentUse& use = *program.add_uses();
    use.set_segment(segment);
    use.set_repeat(repeat);
  }
}

run::Program TinyPlan::Compiled() const { return Compile(plan_, TinyCosts()).value(); }

OpCost TinyCosts::Price(const pb::Op& op) const {
  return {Picoseconds(op.unit()), Picoseconds(op.module())};
}

}  // namespace foreshard::sim
