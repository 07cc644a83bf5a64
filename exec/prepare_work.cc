// What each op does, in elements.
#include <fmt/format.h>

#include "exec/prepare_parts.h"

namespace foreshard::exec {
namespace {

// Every element that an operand or result names lies inside its buffer.
Status Inside(const OpContext& c, const pb::TensorType& type, int64_t offset, int buffer,
              const char* what, int i) {
  const int64_t extent = Extent(type, offset);
  if (extent <= c.buffer_bytes[buffer]) return OkStatus();
  return InvalidPlan(fmt::format("{} {} reaches byte {} of buffer {}, which holds {}", what, i,
                                 extent, buffer, c.buffer_bytes[buffer]));
}

StatusOr<Work> KernelOf(const OpContext& c) {
  const pb::Op& op = c.op;
  const pb::Kernel& kernel = c.plan.kernels(op.compute().kernel());
  RunKernel run{op.compute().kernel(), std::vector<int64_t>(op.in_size(), 0)};
  for (int i = 0; i < op.in_offsets_size(); ++i) run.in_offsets[i] = op.in_offsets(i);
  for (int i = 0; i < op.in_size(); ++i) {
    RETURN_IF_ERROR(Inside(c, kernel.operands(i), run.in_offsets[i], op.in(i), "operand", i));
  }
  for (int i = 0; i < op.out_size(); ++i) {
    RETURN_IF_ERROR(Inside(c, kernel.results(i), 0, op.out(i), "result", i));
  }
  return Work(std::move(run));
}

}  // namespace

Status Holds(const OpContext& c, int buffer, int64_t elems, DType dtype) {
  if (elems * SizeOf(dtype) == c.buffer_bytes[buffer]) return OkStatus();
  return InvalidPlan(fmt::format("works on {} {} of buffer {}, which holds {} bytes", elems,
                                 Name(dtype), buffer, c.buffer_bytes[buffer]));
}

StatusOr<Work> Concatenate(const OpContext& c, DType from, DType dtype, int64_t to,
                           int64_t expected) {
  CopyElements copy{std::vector<DType>(c.op.in_size(), from), dtype, {}};
  int64_t moved = 0;
  for (int i = 0; i < c.op.in_size(); ++i) {
    const int64_t numel = c.buffer_bytes[c.op.in(i)] / SizeOf(from);
    copy.pieces.push_back({i, 0, 0, to + moved, numel});
    moved += numel;
  }
  if (moved != expected) {
    return InvalidPlan(fmt::format("is to move {} elements, its buffers hold {}", expected, moved));
  }
  return Work(std::move(copy));
}

StatusOr<Work> WorkOf(const OpContext& c) {
  switch (c.op.kind_case()) {
    case pb::Op::kCompute:
      return KernelOf(c);
    case pb::Op::kCopyToDevice:
    case pb::Op::kCastShard:
    case pb::Op::kGatherCopyIn:
    case pb::Op::kAllGather:
    case pb::Op::kCopyOut:
    case pb::Op::kJoinShards:
    case pb::Op::kKeepSlice:
    case pb::Op::kLocalGather:
      return GatherWorkOf(c);
    case pb::Op::kSplitGradient:
    case pb::Op::kConcatGradients:
    case pb::Op::kReduceCopyIn:
    case pb::Op::kReduceScatter:
    case pb::Op::kLocalReduce:
    case pb::Op::kAllReduce:
    case pb::Op::kDivide:
    case pb::Op::kAddReduced:
    case pb::Op::kGradFinalize:
    case pb::Op::kCopyToHost:
      return ReduceWorkOf(c);
    case pb::Op::kBucketCopyIn:
    case pb::Op::kBucketCopyOut:
    case pb::Op::kBroadcast:
      return BucketWorkOf(c);
    case pb::Op::kOptimizerInit:
      return Work(ZeroState{});
    case pb::Op::kClipNorms:
    case pb::Op::kClipScale:
    case pb::Op::kOptimizerStep:
      return UpdateWorkOf(c);
    default:
      return Work();
  }
}

}  // namespace foreshard::exec
