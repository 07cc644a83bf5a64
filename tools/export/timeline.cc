#include "tools/export/timeline.h"

#include <fmt/format.h>

#include "proto/base/dtype.h"
#include "proto/run/program.h"
#include "tools/render/names.h"

namespace foreshard {
namespace {

constexpr int kSteadySteps = 2;

// Steps before the steady ones.
int StepsBeforeSteady(const pb::Plan& plan) { return plan.programs_size() - 1; }

// Bytes of the full buffer of a collective, 0 for other ops.
int64_t CollectiveBytes(const pb::Op& op) {
  if (op.has_all_gather()) {
    return op.all_gather().elems_out() * SizeOf(static_cast<DType>(op.all_gather().dtype()));
  }
  if (op.has_all_reduce()) {
    return op.all_reduce().elems() * SizeOf(static_cast<DType>(op.all_reduce().dtype()));
  }
  if (op.has_broadcast()) {
    return op.broadcast().elems() * SizeOf(static_cast<DType>(op.broadcast().dtype()));
  }
  if (!op.has_reduce_scatter()) return 0;
  return op.reduce_scatter().elems_in() * SizeOf(static_cast<DType>(op.reduce_scatter().dtype()));
}

// The name of the flow that the op at `sequence` starts; 0 would be none.
uint64_t FlowOf(int64_t sequence) { return static_cast<uint64_t>(sequence) + 1; }

}  // namespace

Timeline::Timeline(const pb::Plan& plan)
    : plan_(plan),
      trace_(fmt::format("rank 0 of {}", plan.mesh().world_size())),
      steps_drawn_(StepsBeforeSteady(plan) + kSteadySteps),
      started_(static_cast<size_t>(plan.streams_size()), SimTime(0)) {
  steps_ = trace_.AddTrack("steps");
  host_ = trace_.AddTrack("host (issues)");
  for (const pb::Stream& stream : plan.streams()) {
    streams_.push_back(trace_.AddTrack(fmt::format("stream {}", stream.name())));
  }
  AddCounters();
  for (const int buffer : plan.resident()) Change(buffer, +1, SimTime(0));
  FlushCounters();
}

void Timeline::AddCounters() {
  total_.track = trace_.AddByteCounter("memory: total");
  for (const pb::Buffer& buffer : plan_.buffers()) {
    category_.push_back(buffer.category());
    if (!buffer.host()) categories_[buffer.category()];
  }
  for (const pb::Segment& segment : plan_.segments()) {
    for (const pb::Op& op : segment.ops()) {
      for (const pb::Settle& settle : op.settles()) categories_[settle.category()];
    }
  }
  for (auto& [category, counter] : categories_) {
    counter.track = trace_.AddByteCounter(fmt::format("memory: {}", CategoryName(category)));
  }
}

std::string Timeline::Take() {
  FlushCounters();
  return trace_.Take();
}

const pb::Op& Timeline::OpOf(const run::OpInstance& op) const {
  return plan_.segments(static_cast<int>(op.segment)).ops(op.position);
}

PerfettoTrace::Event Timeline::Describe(const run::OpInstance& instance,
                                        const std::string& name) const {
  const pb::Op& op = OpOf(instance);
  PerfettoTrace::Event event;
  event.name = name;
  if (op.has_unit()) event.notes.emplace_back("unit", plan_.units(op.unit()).name());
  if (op.has_module()) event.notes.emplace_back("module", plan_.modules(op.module()).path());
  event.notes.emplace_back("phase", PhaseName(op.phase()));
  event.notes.emplace_back(
      "op", fmt::format("{} {}", plan_.segments(static_cast<int>(instance.segment)).name(),
                        instance.position));
  if (op.has_all_gather()) {
    event.notes.emplace_back("reason", ReasonName(op.all_gather().reason()));
  }
  if (const int64_t bytes = CollectiveBytes(op); bytes > 0) {
    event.notes.emplace_back("bytes", std::to_string(bytes));
  }
  return event;
}

std::string Timeline::NameOf(const run::OpInstance& instance) const {
  const pb::Op& op = OpOf(instance);
  return op.has_compute() ? plan_.kernels(op.compute().kernel()).name() : run::KindName(op);
}

void Timeline::OpBegun(const run::OpInstance&, SimTime at) { begun_ = at; }

void Timeline::OpIssued(const run::OpInstance& op, SimTime at) {
  if (!Drawn(op.step)) return;
  const std::string name = NameOf(op);
  const PerfettoTrace::Event event = Describe(op, name);
  if (at > begun_) {
    trace_.Begin(host_, begun_, event);
    trace_.End(host_, at);
  } else {
    trace_.Instant(host_, at, event);
  }
  for (const pb::Settle& settle : OpOf(op).settles()) {
    Change(settle.buffer(), -1, at);
    category_[static_cast<size_t>(settle.buffer())] = settle.category();
    Change(settle.buffer(), +1, at);
  }
}

void Timeline::OpStarted(const run::OpInstance& op, SimTime at) {
  started_[static_cast<size_t>(OpOf(op).stream())] = at;
}

// A slice is written when it ends, once it is known to have taken time.
void Timeline::OpEnded(const run::OpInstance& instance, SimTime at) {
  const pb::Op& op = OpOf(instance);
  const auto stream = static_cast<size_t>(op.stream());
  if (!Drawn(instance.step) || at == started_[stream]) return;
  const std::string name = NameOf(instance);
  PerfettoTrace::Event event = Describe(instance, name);
  const int64_t segment_begin = instance.sequence - instance.position;
  if (op.has_all_gather()) event.starts_flow = FlowOf(instance.sequence);
  if (op.has_copy_out()) {
    for (const int wait : op.waits()) {
      const pb::Segment& segment = plan_.segments(static_cast<int>(instance.segment));
      if (segment.ops(wait).has_all_gather()) event.ends_flow = FlowOf(segment_begin + wait);
    }
  }
  trace_.Begin(streams_[stream], started_[stream], event);
  trace_.End(streams_[stream], at);
}

void Timeline::BufferAllocated(run::BufferId buffer, const run::OpInstance& op, SimTime at) {
  if (!Drawn(op.step)) return;
  const int index = static_cast<int>(buffer);
  category_[static_cast<size_t>(index)] = plan_.buffers(index).category();
  Change(index, +1, at);
}

void Timeline::BufferFreed(run::BufferId buffer, const run::OpInstance& op, SimTime at) {
  if (Drawn(op.step)) Change(static_cast<int>(buffer), -1, at);
}

void Timeline::StepEnded(int32_t step, SimTime at) {
  if (Drawn(step)) {
    const int steady = steps_drawn_ - kSteadySteps;
    const int program = step < steady ? step : steady;
    trace_.Begin(steps_, step_end_, {plan_.programs(program).name(), {}});
    trace_.End(steps_, at);
  }
  step_end_ = at;
}

// Changes of one moment are written together, but for its highest point, which is kept.
void Timeline::Change(int buffer, int sign, SimTime at) {
  if (plan_.buffers(buffer).host()) return;
  if (at != counted_at_ || (sign < 0 && !falling_)) FlushCounters();
  counted_at_ = at;
  falling_ = sign < 0;
  for (Counter* counter : {&total_, &categories_[category_[static_cast<size_t>(buffer)]]}) {
    counter->bytes += sign * plan_.buffers(buffer).bytes();
    counter->changed = true;
  }
}

void Timeline::FlushCounters() {
  const auto flush = [this](Counter& counter) {
    if (counter.changed) trace_.Count(counter.track, counted_at_, counter.bytes);
    counter.changed = false;
  };
  flush(total_);
  for (auto& [category, counter] : categories_) flush(counter);
}

}  // namespace foreshard
