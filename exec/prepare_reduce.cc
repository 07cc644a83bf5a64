// What moves from the gradients of a unit to what the optimizer reads.
#include <fmt/format.h>

#include <algorithm>

#include "exec/prepare_parts.h"

namespace foreshard::exec {
namespace {

DType Type(pb::DType dtype) { return static_cast<DType>(dtype); }

StatusOr<Work> Local(const OpContext& c) {
  const DType dtype = Type(c.op.local_reduce().dtype());
  return Concatenate(c, dtype, dtype, 0, c.op.local_reduce().elems());
}

// From the parameter to [rank][shard].
StatusOr<Work> Split(const OpContext& c) {
  const pb::SplitGradient& split = c.op.split_gradient();
  const DType dtype = Type(split.dtype());
  const int p = split.parameter();
  RETURN_IF_ERROR(Holds(c, c.op.in(0), c.shards.numel(p), dtype));
  const ShardMap::Runs runs = c.shards.LocalRuns(p);
  CopyElements copy{{dtype}, dtype, {}};
  for (int rank = 0; rank < c.shards.ranks(); ++rank) {
    copy.pieces.push_back({0, 0, rank * runs.numel, rank * c.shards.padded_numel(p), runs.numel,
                           runs.count, runs.step, runs.numel});
  }
  return Work(std::move(copy));
}

// The parts of a flat parameter's gradient to where they stand in it, zeros elsewhere.
StatusOr<Work> Join(const OpContext& c) {
  const pb::ConcatGradients& join = c.op.concat_gradients();
  const DType dtype = Type(join.dtype());
  CopyElements copy{std::vector<DType>(c.op.in_size(), dtype), dtype, {}};
  int64_t end = 0;  // of what has been written
  const auto zeros_up_to = [&](int64_t place) {
    if (end < place) copy.pieces.push_back({kZeros, 0, 0, end, place - end});
  };
  for (int i = 0; i < c.op.in_size(); ++i) {
    const int p = join.parameters(i);
    const int64_t numel = c.shards.numel(p);
    const int64_t to = c.plan.parameters(p).flat_offset();
    RETURN_IF_ERROR(Holds(c, c.op.in(i), numel, dtype));
    zeros_up_to(to);
    copy.pieces.push_back({i, 0, 0, to, numel});
    end = to + numel;
  }
  zeros_up_to(join.elems());
  RETURN_IF_ERROR(Holds(c, c.op.out(0), std::max(end, join.elems()), dtype));
  return Work(std::move(copy));
}

// One gradient as it is, with zeros after it.
StatusOr<Work> Pad(const OpContext& c) {
  const pb::ReduceCopyIn& op = c.op.reduce_copy_in();
  const DType from = Type(op.from(0));
  RETURN_IF_ERROR(Holds(c, c.op.in(0), op.elems_in(), from));
  RETURN_IF_ERROR(Holds(c, c.op.out(0), std::max(op.elems_in(), op.elems_out()), Type(op.to())));
  CopyElements copy{{from}, Type(op.to()), {{0, 0, 0, 0, op.elems_in()}}};
  const int64_t zeros = op.elems_out() - op.elems_in();
  if (zeros > 0) copy.pieces.push_back({kZeros, 0, 0, op.elems_in(), zeros});
  return Work(std::move(copy));
}

void AddSlices(const ShardMap& shards, int gradient, int parameter, int64_t slice, int64_t offset,
               CopyElements& copy) {
  const int64_t numel = shards.numel(parameter);
  const int64_t padded = shards.padded_numel(parameter);
  for (int rank = 0; rank < shards.ranks(); ++rank) {
    const int64_t from = std::min(rank * padded, numel);
    const int64_t real = std::min(padded, numel - from);
    const int64_t to = rank * slice + offset;
    if (real > 0) copy.pieces.push_back({gradient, 0, from, to, real});
    if (real < padded) copy.pieces.push_back({kZeros, 0, 0, to + real, padded - real});
  }
}

// From one gradient a parameter to [rank][parameter], the last rows padded with zeros.
StatusOr<Work> CopyIn(const OpContext& c) {
  const pb::ReduceCopyIn& op = c.op.reduce_copy_in();
  if (c.shards.IsFlat(c.op.unit())) return Pad(c);
  const std::vector<int> parameters = c.shards.Trainable(c.op.unit());
  if (static_cast<int>(parameters.size()) != c.op.in_size()) {
    return InvalidPlan(fmt::format("reads {} gradients of a unit with {} trainable parameters",
                                   c.op.in_size(), parameters.size()));
  }
  CopyElements copy{{}, Type(op.to()), {}};
  const int64_t slice = c.plan.units(c.op.unit()).grad_padded_shard_numel();
  int64_t offset = 0;
  for (int i = 0; i < c.op.in_size(); ++i) {
    const int p = parameters[i];
    copy.from.push_back(Type(op.from(i)));
    RETURN_IF_ERROR(Holds(c, c.op.in(i), c.shards.numel(p), copy.from[i]));
    AddSlices(c.shards, i, p, slice, offset, copy);
    offset += c.shards.padded_numel(p);
  }
  RETURN_IF_ERROR(Holds(c, c.op.out(0), slice * c.shards.ranks(), copy.to));
  return Work(std::move(copy));
}

StatusOr<Work> Scatter(const OpContext& c) {
  const pb::ReduceScatter& op = c.op.reduce_scatter();
  RETURN_IF_ERROR(Holds(c, c.op.in(0), op.elems_in(), Type(op.dtype())));
  ReduceSlices reduce{op.group(), op.elems_out(), Type(op.dtype()),
                      op.reduction() == pb::ReduceScatter::AVG};
  if (op.reduction() == pb::ReduceScatter::PREMUL_SUM) reduce.factor = op.factor();
  return Work(reduce);
}

StatusOr<Work> AllReduce(const OpContext& c) {
  const pb::AllReduce& op = c.op.all_reduce();
  RETURN_IF_ERROR(Holds(c, c.op.out(0), op.elems(), Type(op.dtype())));
  return Work(ReduceInPlace{op.group(), op.elems(), Type(op.dtype()),
                            op.reduction() == pb::ReduceScatter::AVG});
}

StatusOr<Work> Add(const OpContext& c, int64_t elems, DType dtype) {
  for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(Holds(c, c.op.in(i), elems, dtype));
  return Work(AddElements{elems, dtype});
}

StatusOr<Work> Finalize(const OpContext& c) {
  const pb::GradFinalize& op = c.op.grad_finalize();
  const DType to = Type(op.to());
  if (op.accumulate()) return Add(c, c.buffer_bytes[c.op.out(0)] / SizeOf(to), to);
  if (c.op.out_size() == 0 || c.op.out(0) == c.op.in(0)) return Work();
  const DType from = Type(op.from());
  return Concatenate(c, from, to, 0, c.buffer_bytes[c.op.in(0)] / SizeOf(from));
}

// The rank's real elements of one parameter, or all of a flat one's shard.
StatusOr<Work> ToHost(const OpContext& c) {
  const DType dtype = Type(c.op.copy_to_host().dtype());
  const int64_t from = c.op.in_offsets_size() > 0 ? c.op.in_offsets(0) : 0;
  const int p = c.op.copy_to_host().parameter();
  const bool is_flat = c.shards.IsFlat(c.op.unit());
  const int64_t numel = is_flat ? c.shards.buffer_numel(p) : c.shards.local_numel(p);
  if ((from + numel) * SizeOf(dtype) > c.buffer_bytes[c.op.in(0)]) {
    return InvalidPlan(fmt::format("reads elements {} to {} of buffer {}, which holds {} bytes",
                                   from, from + numel, c.op.in(0), c.buffer_bytes[c.op.in(0)]));
  }
  return Work(CopyElements{{dtype}, dtype, {{0, 0, from, 0, numel}}});
}

}  // namespace

StatusOr<Work> ReduceWorkOf(const OpContext& c) {
  switch (c.op.kind_case()) {
    case pb::Op::kSplitGradient:
      return Split(c);
    case pb::Op::kConcatGradients:
      return Join(c);
    case pb::Op::kReduceCopyIn:
      return CopyIn(c);
    case pb::Op::kReduceScatter:
      return Scatter(c);
    case pb::Op::kLocalReduce:
      return Local(c);
    case pb::Op::kAllReduce:
      return AllReduce(c);
    case pb::Op::kDivide: {
      const pb::Divide& divide = c.op.divide();
      RETURN_IF_ERROR(Holds(c, c.op.out(0), divide.elems(), Type(divide.dtype())));
      return Work(DivideElements{divide.elems(), Type(divide.dtype()), divide.divisor()});
    }
    case pb::Op::kAddReduced:
      return Add(c, c.op.add_reduced().elems(), Type(c.op.add_reduced().dtype()));
    case pb::Op::kGradFinalize:
      return Finalize(c);
    default:
      return ToHost(c);
  }
}

}  // namespace foreshard::exec
