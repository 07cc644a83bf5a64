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
  return out;
}

}  // namespace

ShardMap::ShardMap(const pb::Plan& plan, int rank)
    : plan_(plan),
      rank_(rank),
      ranks_(plan.mesh().shard_size()),
      shard_rank_(rank % plan.mesh().shard_size()) {}

int64_t ShardMap::numel(int parameter) const {
  int64_t n = 1;
  for (const int64_t d : plan_.parameters(parameter).shape()) n *= d;
  return n;
}

int64_t ShardMap::padded_numel(int parameter) const {
  const pb::Parameter& p = plan_.parameters(parameter);
  const int64_t slices = p.shape(p.shard_dim());
  return (slices + ranks_ - 1) / ranks_ * (numel(parameter) / slices);
}

int64_t ShardMap::local_numel(int parameter) const {
  const int64_t padded = padded_numel(parameter);
  return std::clamp<int64_t>(numel(parameter) - padded * shard_rank_, 0, padded);
}

ShardMap::Runs ShardMap::LocalRuns(int parameter) const {
  const pb::Parameter& p = plan_.parameters(parameter);
  Runs runs;
  for (int i = 0; i < p.shard_dim(); ++i) runs.count *= p.shape(i);
  runs.numel = local_numel(parameter) / runs.count;
  runs.first = shard_rank_ * padded_numel(parameter) / runs.count;
  runs.step = numel(parameter) / runs.count;
  return runs;
}

int ShardMap::Member(int group) const {
  const pb::Group& g = plan_.groups(group);
  return rank_ / g.stride() % g.size();
}

DType ShardMap::dtype(int parameter) const {
  return static_cast<DType>(plan_.parameters(parameter).dtype());
}

std::vector<int> ShardMap::Trainable(int unit) const {
  std::vector<int> result;
  for (const int p : plan_.units(unit).parameters()) {
    if (!plan_.parameters(p).frozen()) result.push_back(p);
  }
  return result;
}

std::vector<int> ShardMap::Trainable() const {
  std::vector<int> result;
  for (int p = 0; p < plan_.parameters_size(); ++p) {
    if (!plan_.parameters(p).frozen()) result.push_back(p);
  }
  return result;
}

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
