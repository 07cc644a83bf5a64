#include "proto/run/program.h"

#include "proto/op_facts.h"
#include "proto/plan.pb.h"

namespace foreshard::run {
namespace {

template <typename T>
Range Append(std::vector<T>& all, const google::protobuf::RepeatedField<int32_t>& values) {
  Range range;
  range.begin = static_cast<int32_t>(all.size());
  for (int32_t value : values) all.push_back(static_cast<T>(value));
  range.end = static_cast<int32_t>(all.size());
  return range;
}

Range AppendRecords(const pb::Op& op, Program& program) {
  Range range{static_cast<int32_t>(program.wait_records.size()), 0};
  for (const pb::EventWait& wait : op.event_waits()) {
    program.wait_records.push_back({EventId{wait.event()}, wait.back()});
  }
  range.end = static_cast<int32_t>(program.wait_records.size());
  return range;
}

OpRecord FlattenOp(const pb::Op& op, Program& program) {
  OpRecord record;
  if (op.has_stream()) record.stream = StreamId{op.stream()};
  record.group = GroupId{CollectiveGroup(op)};
  record.waits = Append(program.wait_ops, op.waits());
  record.host_waits = Append(program.wait_ops, op.host_waits());
  record.stream_waits = Append(program.wait_streams, op.stream_wait().on());
  record.event_waits = AppendRecords(op, program);
  if (op.has_record()) {
    record.record = EventId{op.record()};
    record.record_stream = StreamId{op.record_stream()};
  }
  record.allocs = Append(program.buffer_lists, op.allocs());
  record.frees = Append(program.buffer_lists, op.frees());
  record.phase = op.phase();
  record.micro_batch = op.micro_batch();
  return record;
}

void FlattenTables(const pb::Plan& plan, int rank, Program& program) {
  for (const pb::Buffer& buffer : plan.buffers()) {
    program.buffer_bytes.push_back(BytesOn(buffer, rank));
  }
  Append(program.resident, plan.resident());
  for (const pb::Stream& stream : plan.streams()) {
    program.is_compute_stream.push_back(stream.role() == pb::Stream::COMPUTE);
    program.is_host_stream.push_back(stream.role() == pb::Stream::HOST);
  }
  program.groups = plan.groups_size();
  program.event_depths = EventDepths(plan);
}

}  // namespace

Bytes BytesOn(const pb::Buffer& buffer, int rank) {
  for (const pb::RankBytes& other : buffer.others()) {
    if (other.rank() == rank) return Bytes(other.bytes());
  }
  return Bytes(buffer.bytes());
}

Program Flatten(const pb::Plan& plan, int rank) {
  Program program;
  FlattenTables(plan, rank, program);
  for (const pb::Segment& segment : plan.segments()) {
    const OpId first{static_cast<int32_t>(program.ops.size())};
    program.segments.push_back(SegmentRecord{first, segment.ops_size()});
    for (const pb::Op& op : segment.ops()) program.ops.push_back(FlattenOp(op, program));
  }
  for (const pb::Program& source : plan.programs()) {
    std::vector<UseRecord>& uses = program.programs.emplace_back();
    for (const pb::SegmentUse& use : source.uses()) {
      uses.push_back(UseRecord{SegmentId{use.segment()}, use.repeat()});
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

}  // namespace foreshard::run
