#include "sim/program.h"

#include <fmt/core.h>

#include "proto/plan.pb.h"

namespace foreshard::sim {
namespace {

template <typename T>
Range Append(std::vector<T>& all, const google::protobuf::RepeatedField<int32_t>& values) {
  Range range;
  range.begin = static_cast<int32_t>(all.size());
  for (int32_t value : values) all.push_back(static_cast<T>(value));
  range.end = static_cast<int32_t>(all.size());
  return range;
}

GroupId GroupOf(const pb::Op& op) {
  if (op.has_all_gather()) return GroupId{op.all_gather().group()};
  if (op.has_reduce_scatter()) return GroupId{op.reduce_scatter().group()};
  return kNoGroup;
}

OpRecord CompileOp(const pb::Op& op, const OpCost& cost, Program& program) {
  OpRecord record;
  record.host = ToSimTime(cost.host);
  record.device = ToSimTime(cost.device);
  if (op.has_stream()) record.stream = StreamId{op.stream()};
  record.group = GroupOf(op);
  record.waits = Append(program.wait_ops, op.waits());
  record.host_waits = Append(program.wait_ops, op.host_waits());
  record.stream_waits = Append(program.wait_streams, op.stream_wait().on());
  record.allocs = Append(program.buffer_lists, op.allocs());
  record.frees = Append(program.buffer_lists, op.frees());
  record.phase = op.phase();
  record.micro_batch = op.micro_batch();
  return record;
}

void CompileTables(const pb::Plan& plan, Program& program) {
  for (const pb::Buffer& buffer : plan.buffers()) {
    program.buffer_bytes.push_back(Bytes(buffer.bytes()));
  }
  Append(program.resident, plan.resident());
  for (const pb::Stream& stream : plan.streams()) {
    program.is_compute_stream.push_back(stream.role() == pb::Stream::COMPUTE);
  }
  program.groups = plan.groups_size();
}

// Written so that NaN is refused too.
bool IsReasonable(Seconds time) { return time >= Seconds(0) && time <= kLongestProgram; }

Status CompileSegment(const pb::Segment& segment, const CostModel& costs, Program& program) {
  const OpId first{static_cast<int32_t>(program.ops.size())};
  program.segments.push_back(SegmentRecord{first, segment.ops_size()});
  for (const pb::Op& op : segment.ops()) {
    const OpCost cost = costs.Price(op);
    if (!IsReasonable(cost.host) || !IsReasonable(cost.device)) {
      return InvalidArgument(fmt::format(
          "segment \"{}\" op {} ({}) would take {} s on this hardware", segment.name(),
          program.ops.size() - Index(first), KindName(op), (cost.host + cost.device).count()));
    }
    program.ops.push_back(CompileOp(op, cost, program));
  }
  return OkStatus();
}

// Sum of all its ops, one after the other.
Seconds LongestTime(const Program& program, const std::vector<UseRecord>& uses) {
  Seconds total{0};
  for (const UseRecord& use : uses) {
    const SegmentRecord& segment = program.segments[Index(use.segment)];
    Seconds once{0};
    for (int32_t i = 0; i < segment.size; ++i) {
      const OpRecord& op = program.ops[Index(segment.first) + i];
      once += op.host + op.device;
    }
    total += use.repeat * once;
  }
  return total;
}

}  // namespace

StatusOr<Program> Compile(const pb::Plan& plan, const CostModel& costs) {
  Program program;
  CompileTables(plan, program);
  for (const pb::Segment& segment : plan.segments()) {
    RETURN_IF_ERROR(CompileSegment(segment, costs, program));
  }
  for (const pb::Program& source : plan.programs()) {
    std::vector<UseRecord>& uses = program.programs.emplace_back();
    for (const pb::SegmentUse& use : source.uses()) {
      uses.push_back(UseRecord{SegmentId{use.segment()}, use.repeat()});
    }
    const Seconds longest = LongestTime(program, uses);
    if (!IsReasonable(longest)) {
      return InvalidArgument(fmt::format("program \"{}\" would take up to {} s on this hardware",
                                         source.name(), longest.count()));
    }
  }
  return program;
}

std::string KindName(const pb::Op& op) {
  const google::protobuf::OneofDescriptor* kind = pb::Op::descriptor()->FindOneofByName("kind");
  const google::protobuf::FieldDescriptor* field =
      pb::Op::GetReflection()->GetOneofFieldDescriptor(op, kind);
  return field == nullptr ? "none" : field->name();
}

}  // namespace foreshard::sim
