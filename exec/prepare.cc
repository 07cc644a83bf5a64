#include "exec/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "exec/kernel_call.h"
#include "exec/prepare_parts.h"
#include "proto/plan.pb.h"
#include "proto/run/program.h"

namespace foreshard::exec {
namespace {

StatusOr<PreparedKernel> PrepareKernel(const pb::Kernel& kernel) {
  PreparedKernel prepared;
  prepared.name = kernel.name();
  for (const auto* types : {&kernel.operands(), &kernel.results()}) {
    for (const pb::TensorType& type : *types) {
      if (type.shape_size() > kMaxDims) {
        return InvalidPlan(fmt::format("kernel {} has a tensor of {} dimensions, {} are the most",
                                       kernel.name(), type.shape_size(), kMaxDims));
      }
      (types == &kernel.operands() ? prepared.in : prepared.out).push_back(ViewOf(type, nullptr));
    }
  }
  prepared.attributes = AttributesOf(kernel);
  return prepared;
}

template <typename List>
std::vector<int> Ints(const List& list) {
  return {list.begin(), list.end()};
}

void MarkAwaited(PreparedSegment& segment) {
  std::vector<PreparedOp>& ops = segment.ops;
  for (const PreparedOp& op : ops) {
    for (const int wait : op.waits) ops[wait].is_awaited = true;
    for (const int wait : op.host_waits) ops[wait].is_awaited = true;
  }
}

int GroupOf(const Work& work) {
  if (const auto* gather = std::get_if<GatherSlices>(&work)) return gather->group;
  if (const auto* reduce = std::get_if<ReduceSlices>(&work)) return reduce->group;
  if (const auto* reduce = std::get_if<ReduceInPlace>(&work)) return reduce->group;
  if (const auto* send = std::get_if<SendToAll>(&work)) return send->group;
  return -1;
}

StatusOr<PreparedOp> PrepareOp(const OpContext& context) {
  const pb::Plan& plan = context.plan;
  const pb::Op& op = context.op;
  PreparedOp out;
  if (op.has_stream()) out.stream = op.stream();
  out.waits = Ints(op.waits());
  out.host_waits = Ints(op.host_waits());
  out.awaited_streams = Ints(op.stream_wait().on());
  out.allocs = Ints(op.allocs());
  out.frees = Ints(op.frees());
  out.in = Ints(op.in());
  out.out = Ints(op.out());
  out.scratch = ScratchOf(op);
  ASSIGN_OR_RETURN(out.work, WorkOf(context));
  out.group = GroupOf(out.work);
  out.writes_loss = std::ranges::any_of(
      out.out, [&](int b) { return std::ranges::find(plan.losses(), b) != plan.losses().end(); });
  for (const pb::Input& input : plan.inputs()) {
    out.reads_input |= std::ranges::find(out.in, input.buffer()) != out.in.end();
  }
  out.micro_batch = op.micro_batch();
  if (op.has_random()) out.random = op.random();
  if (op.has_record()) out.record = op.record();
  out.record_stream = op.record_stream();
  for (const pb::EventWait& wait : op.event_waits()) {
    out.event_waits.push_back({wait.event(), wait.back()});
  }
  return out;
}

}  // namespace

std::string PlaceOf(const pb::Plan& plan, const pb::Segment& segment, int op) {
  const pb::Op& o = segment.ops(op);
  std::string what = run::KindName(o);
  if (o.has_compute()) what += " " + plan.kernels(o.compute().kernel()).name();
  if (o.has_unit()) what += ", " + plan.units(o.unit()).name();
  return fmt::format("segment \"{}\" op {} ({})", segment.name(), op, what);
}

StatusOr<PreparedPlan> Prepare(const pb::Plan& plan, int rank) {
  const ShardMap shards(plan, rank);
  PreparedPlan prepared;
  for (const pb::Kernel& kernel : plan.kernels()) {
    ASSIGN_OR_RETURN(PreparedKernel row, PrepareKernel(kernel));
    prepared.kernels.push_back(std::move(row));
  }
  ASSIGN_OR_RETURN(prepared.buffer_bytes, DeriveBufferBytes(plan, shards));
  for (const pb::Segment& segment : plan.segments()) {
    PreparedSegment& out = prepared.segments.emplace_back();
    for (int i = 0; i < segment.ops_size(); ++i) {
      const OpContext context{plan, shards, prepared.buffer_bytes, segment, i, segment.ops(i)};
      StatusOr<PreparedOp> op = PrepareOp(context);
      if (!op.ok()) return op.status().At(PlaceOf(plan, segment, i));
      op.value().place = PlaceOf(plan, segment, i);
      out.ops.push_back(std::move(op).value());
    }
    MarkAwaited(out);
  }
  return prepared;
}

}  // namespace foreshard::exec
