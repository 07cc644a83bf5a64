// Sizes of what gathers, reductions and the copies around them move.
#include <fmt/format.h>

#include <cmath>

#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {

StatusOr<int64_t> SizeIn(const OpContext& c, int64_t elems, pb::DType dtype) {
  const std::optional<int64_t> bytes = Multiply(elems, ElementBytes(dtype));
  if (ElementBytes(dtype) == 0 || !bytes) {
    return c.Broken("collective", fmt::format("{} elements of dtype {} are no size", elems,
                                              static_cast<int>(dtype)));
  }
  return *bytes;
}

Status Whole(const OpContext& c, int32_t buffer, int64_t bytes) {
  if (c.buffer(buffer).bytes() == bytes) return OkStatus();
  return c.Broken("collective", fmt::format("buffer {} has {} bytes, the op moves {}", buffer,
                                            c.buffer(buffer).bytes(), bytes));
}

namespace {

// The buffers together are exactly `bytes`.
template <typename Buffers>
Status Exactly(const OpContext& c, std::string_view role, const Buffers& buffers, int64_t bytes) {
  int64_t total = 0;
  for (const int32_t buffer : buffers) {
    // A list may repeat a buffer, so the sum needs its own bound.
    if (total <= bytes) total += c.buffer(buffer).bytes();
  }
  if (total == bytes) return OkStatus();
  return c.Broken("collective",
                  fmt::format("its buffers {} have {} bytes, the op moves {}", role, total, bytes));
}

// Sizes of a collective: `whole` = group size x `part`, and the group exists.
Status CheckGroup(const OpContext& c, int32_t group, int64_t part, int64_t whole) {
  if (!InTable(group, c.plan.groups_size())) {
    return c.Broken("index", fmt::format("group {} of {}", group, c.plan.groups_size()));
  }
  const int32_t size = c.plan.groups(group).size();
  const std::optional<int64_t> expected = Multiply(part, size);
  if (expected && *expected == whole) return OkStatus();
  return c.Broken("collective",
                  fmt::format("{} elements in all, expected {} x {} of a rank", whole, size, part));
}

Status OneEach(const OpContext& c) {
  if (c.op().in_size() == 1 && c.op().out_size() == 1) return OkStatus();
  return c.Broken("collective", fmt::format("reads {} and writes {} buffers, expected one each",
                                            c.op().in_size(), c.op().out_size()));
}

Status CheckAllGather(const OpContext& c) {
  const pb::AllGather& gather = c.op().all_gather();
  RETURN_IF_ERROR(CheckGroup(c, gather.group(), gather.elems_in(), gather.elems_out()));
  RETURN_IF_ERROR(OneEach(c));
  ASSIGN_OR_RETURN(const int64_t part, SizeIn(c, gather.elems_in(), gather.dtype()));
  ASSIGN_OR_RETURN(const int64_t whole, SizeIn(c, gather.elems_out(), gather.dtype()));
  RETURN_IF_ERROR(Whole(c, c.op().out(0), whole));
  return c.op().in(0) == c.op().out(0) ? OkStatus() : Whole(c, c.op().in(0), part);
}

// The gradients that a reduction collects may differ in dtype.
Status CheckGradients(const OpContext& c) {
  const pb::Op& op = c.op();
  const pb::ReduceCopyIn& copy = op.reduce_copy_in();
  if (copy.from_size() != op.in_size()) {
    return c.Broken("collective",
                    fmt::format("{} dtypes for {} gradients", copy.from_size(), op.in_size()));
  }
  int64_t elems = 0;
  for (int i = 0; i < op.in_size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t size, SizeIn(c, 1, static_cast<pb::DType>(copy.from(i))));
    // A list may repeat a buffer, so the sum needs its own bound.
    if (elems < int64_t{1} << 61) elems += c.plan.buffers(op.in(i)).bytes() / size;
  }
  if (elems == copy.elems_in()) return OkStatus();
  return c.Broken("collective", fmt::format("its gradients hold {} elements, the op moves {}",
                                            elems, copy.elems_in()));
}

// PREMUL_SUM alone has a factor.
Status CheckReduction(const OpContext& c, const pb::ReduceScatter& reduce) {
  switch (reduce.reduction()) {
    case pb::ReduceScatter::SUM:
    case pb::ReduceScatter::AVG:
      if (reduce.factor() == 0) return OkStatus();
      return c.Broken("collective", "has a factor, which only PREMUL_SUM takes");
    case pb::ReduceScatter::PREMUL_SUM:
      if (std::isfinite(reduce.factor()) && reduce.factor() > 0) return OkStatus();
      return c.Broken("collective",
                      fmt::format("the factor of PREMUL_SUM is {}, expected it finite "
                                  "and above 0",
                                  reduce.factor()));
    default:
      return c.Broken("collective", "the reduction is neither SUM, AVG nor PREMUL_SUM");
  }
}

Status CheckReduceScatter(const OpContext& c) {
  const pb::ReduceScatter& reduce = c.op().reduce_scatter();
  RETURN_IF_ERROR(CheckGroup(c, reduce.group(), reduce.elems_out(), reduce.elems_in()));
  RETURN_IF_ERROR(OneEach(c));
  RETURN_IF_ERROR(CheckReduction(c, reduce));
  ASSIGN_OR_RETURN(const int64_t whole, SizeIn(c, reduce.elems_in(), reduce.dtype()));
  ASSIGN_OR_RETURN(const int64_t part, SizeIn(c, reduce.elems_out(), reduce.dtype()));
  RETURN_IF_ERROR(Whole(c, c.op().in(0), whole));
  return Whole(c, c.op().out(0), part);
}

// One whole buffer into another, or the same.
Status CheckCopy(const OpContext& c, int64_t elems, pb::DType dtype) {
  RETURN_IF_ERROR(OneEach(c));
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, elems, dtype));
  RETURN_IF_ERROR(Whole(c, c.op().in(0), bytes));
  return Whole(c, c.op().out(0), bytes);
}

Status CheckInPlace(const OpContext& c, int64_t elems, pb::DType dtype) {
  RETURN_IF_ERROR(CheckCopy(c, elems, dtype));
  if (c.op().in(0) == c.op().out(0)) return OkStatus();
  return c.Broken("collective", fmt::format("reads buffer {} and writes buffer {}, expected it to "
                                            "work in place",
                                            c.op().in(0), c.op().out(0)));
}

Status CheckLocalCopy(const OpContext& c, std::string_view rule, int64_t elems, pb::DType dtype) {
  if (c.plan.mesh().shard_size() == 1) return CheckCopy(c, elems, dtype);
  return c.Broken(
      rule, fmt::format("is for groups of one rank, this one has {}", c.plan.mesh().shard_size()));
}

// Over replicas, or in CLIP over the shards of one replica.
Status CheckAllReduce(const OpContext& c) {
  const pb::AllReduce& reduce = c.op().all_reduce();
  if (!InTable(reduce.group(), c.plan.groups_size())) {
    return c.Broken("index", fmt::format("group {} of {}", reduce.group(), c.plan.groups_size()));
  }
  const bool clips = c.op().phase() == pb::CLIP;
  const bool sum = reduce.reduction() == pb::ReduceScatter::SUM;
  if (!sum && (clips || reduce.reduction() != pb::ReduceScatter::AVG)) {
    return c.Broken("collective", clips ? "the reduction of norms is not SUM"
                                        : "the reduction is neither SUM nor AVG");
  }
  const pb::Group& group = c.plan.groups(reduce.group());
  const pb::Mesh& mesh = c.plan.mesh();
  const int size = clips ? mesh.shard_size() : mesh.replicate_size();
  const int stride = clips ? 1 : mesh.shard_size();
  if (group.size() != size || group.stride() != stride) {
    return c.Broken(clips ? "clip" : "reduce",
                    fmt::format("is over {} ranks with stride {}, expected {} with stride {}",
                                group.size(), group.stride(), size, stride));
  }
  return CheckInPlace(c, reduce.elems(), reduce.dtype());
}

Status CheckDivide(const OpContext& c) {
  const pb::Divide& divide = c.op().divide();
  if (!std::isfinite(divide.divisor()) || divide.divisor() <= 0) {
    return c.Broken(
        "reduce", fmt::format("divides by {}, expected a finite number above 0", divide.divisor()));
  }
  return CheckInPlace(c, divide.elems(), divide.dtype());
}

// One of two buffers of one size grows by the other.
Status CheckAddition(const OpContext& c, int sum, int64_t bytes) {
  const pb::Op& op = c.op();
  if (op.in_size() != 2 || op.out_size() != 1 || op.in(0) == op.in(1) || op.out(0) != op.in(sum)) {
    return c.Broken("collective",
                    fmt::format("does not read two buffers and write the {} of them in place",
                                sum == 0 ? "first" : "second"));
  }
  RETURN_IF_ERROR(Whole(c, op.in(0), bytes));
  return Whole(c, op.in(1), bytes);
}

// The gradient has as many elements as what was reduced; without an output it is that itself.
Status CheckCastGradient(const OpContext& c) {
  const pb::Op& op = c.op();
  if (op.in_size() != 1 || op.out_size() > 1) {
    return c.Broken("collective", fmt::format("reads {} and writes {} buffers, expected 1 and at "
                                              "most 1",
                                              op.in_size(), op.out_size()));
  }
  ASSIGN_OR_RETURN(const int64_t from, SizeIn(c, 1, op.grad_finalize().from()));
  ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, 1, op.grad_finalize().to()));
  const int32_t out = op.out().empty() ? op.in(0) : op.out(0);
  const int64_t elems = c.buffer(op.in(0)).bytes() / from;
  RETURN_IF_ERROR(Whole(c, op.in(0), elems * from));
  const std::optional<int64_t> bytes = Multiply(elems, to);
  return Whole(c, out, bytes.value_or(-1));
}

Status CheckFinalize(const OpContext& c) {
  const pb::GradFinalize& finalize = c.op().grad_finalize();
  if (!finalize.accumulate()) return CheckCastGradient(c);
  if (finalize.from() != finalize.to() || ElementBytes(finalize.to()) == 0) {
    return c.Broken("collective", "adds to a gradient and casts at once");
  }
  return CheckAddition(c, 1, c.op().in().empty() ? 0 : c.buffer(c.op().in(0)).bytes());
}

Status CheckCastShard(const OpContext& c) {
  const pb::CastShard& cast = c.op().cast_shard();
  ASSIGN_OR_RETURN(const int64_t from, SizeIn(c, cast.elems(), cast.from()));
  ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, cast.elems(), cast.to()));
  RETURN_IF_ERROR(Exactly(c, "read", c.op().in(), from));
  return Exactly(c, "written", c.op().out(), to);
}

// A part of its output; the all-gather has the size of that.
Status CheckGatherCopyIn(const OpContext& c) {
  const pb::GatherCopyIn& copy = c.op().gather_copy_in();
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, copy.elems(), copy.dtype()));
  RETURN_IF_ERROR(Exactly(c, "read", c.op().in(), bytes));
  if (c.op().out_size() == 1) return OkStatus();
  return c.Broken("collective", fmt::format("writes {} buffers, expected one", c.op().out_size()));
}

// Buffers on both sides hold the same elements, cut differently.
Status CheckReordering(const OpContext& c, int64_t elems, pb::DType dtype) {
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, elems, dtype));
  RETURN_IF_ERROR(Exactly(c, "read", c.op().in(), bytes));
  return Exactly(c, "written", c.op().out(), bytes);
}

// One buffer for each that is read, a parts-th of it.
Status CheckParts(const OpContext& c, int64_t parts) {
  const pb::Op& op = c.op();
  if (op.in_size() != op.out_size()) {
    return c.Broken("collective", fmt::format("reads {} and writes {} buffers, expected one for "
                                              "each",
                                              op.in_size(), op.out_size()));
  }
  for (int i = 0; i < op.in_size(); ++i) {
    const std::optional<int64_t> whole = Multiply(c.buffer(op.out(i)).bytes(), parts);
    RETURN_IF_ERROR(Whole(c, op.in(i), whole.value_or(-1)));
  }
  return OkStatus();
}

Status CheckKeepSlice(const OpContext& c) {
  const pb::KeepSlice& keep = c.op().keep_slice();
  if (!InTable(keep.group(), c.plan.groups_size())) {
    return c.Broken("index", fmt::format("group {} of {}", keep.group(), c.plan.groups_size()));
  }
  RETURN_IF_ERROR(CheckParts(c, c.plan.groups(keep.group()).size()));
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, keep.elems(), keep.dtype()));
  return Exactly(c, "written", c.op().out(), bytes);
}

Status CheckReduceCopyIn(const OpContext& c) {
  const pb::ReduceCopyIn& copy = c.op().reduce_copy_in();
  if (copy.elems_in() > copy.elems_out()) {
    return c.Broken("collective", fmt::format("{} elements do not fit into {}", copy.elems_in(),
                                              copy.elems_out()));
  }
  RETURN_IF_ERROR(CheckGradients(c));
  ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, copy.elems_out(), copy.to()));
  return Exactly(c, "written", c.op().out(), to);
}

// The parameter is one of the op's unit.
Status CheckParameter(const OpContext& c, int32_t parameter) {
  if (!InTable(parameter, c.plan.parameters_size())) {
    return c.Broken("index",
                    fmt::format("parameter {} of {}", parameter, c.plan.parameters_size()));
  }
  if (c.plan.parameters(parameter).unit() == c.op().unit()) return OkStatus();
  return c.Broken("unit", fmt::format("parameter \"{}\" belongs to another unit",
                                      c.plan.parameters(parameter).path()));
}

Status CheckSplitGradient(const OpContext& c) {
  const pb::SplitGradient& split = c.op().split_gradient();
  RETURN_IF_ERROR(CheckParameter(c, split.parameter()));
  const pb::Parameter& parameter = c.plan.parameters(split.parameter());
  if (parameter.shard_dim() == 0) {
    return c.Broken("reduce", fmt::format("parameter \"{}\" is sharded along its rows, which need "
                                          "no reordering",
                                          parameter.path()));
  }
  if (Numel(parameter.shape()) != split.elems()) {
    return c.Broken("collective", fmt::format("moves {} elements, not those of parameter \"{}\"",
                                              split.elems(), parameter.path()));
  }
  return CheckCopy(c, split.elems(), split.dtype());
}

// Elements before the parameter's in the gradient of its unit.
int64_t GradientOffset(const pb::Plan& plan, int32_t parameter) {
  int64_t offset = 0;
  for (const int32_t p : plan.units(plan.parameters(parameter).unit()).parameters()) {
    if (p == parameter) break;
    if (!plan.parameters(p).frozen()) offset += plan.parameters(p).padded_shard_numel();
  }
  return offset;
}

// The parameter's part of a gradient that holds those of its unit, or all of a flat parameter's.
Status CheckCopyToHost(const OpContext& c) {
  const pb::Op& op = c.op();
  const pb::CopyToHost& copy = op.copy_to_host();
  if (c.plan.units(op.unit()).has_flat()) return CheckCopy(c, copy.elems(), copy.dtype());
  RETURN_IF_ERROR(CheckParameter(c, copy.parameter()));
  RETURN_IF_ERROR(OneEach(c));
  const pb::Parameter& parameter = c.plan.parameters(copy.parameter());
  if (copy.elems() != parameter.padded_shard_numel()) {
    return c.Broken("collective",
                    fmt::format("moves {} elements, the shard of parameter \"{}\" has "
                                "{}",
                                copy.elems(), parameter.path(), parameter.padded_shard_numel()));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, copy.elems(), copy.dtype()));
  RETURN_IF_ERROR(Whole(c, op.out(0), bytes));
  const int64_t offset = op.in_offsets().empty() ? 0 : op.in_offsets(0);
  const int64_t there = c.buffer(op.in(0)).bytes() / ElementBytes(copy.dtype());
  const bool complete = there == c.plan.units(op.unit()).grad_padded_shard_numel();
  if (offset < 0 || copy.elems() > there || offset > there - copy.elems() ||
      (complete && offset != GradientOffset(c.plan, copy.parameter()))) {
    return c.Broken("view", fmt::format("element {} of buffer {} is not where the gradient of "
                                        "parameter \"{}\" begins",
                                        offset, op.in(0), parameter.path()));
  }
  return OkStatus();
}

}  // namespace

Status CheckMove(const OpContext& c) {
  const pb::Op& op = c.op();
  switch (op.kind_case()) {
    case pb::Op::kCastShard:
      return CheckCastShard(c);
    case pb::Op::kGatherCopyIn:
      return CheckGatherCopyIn(c);
    case pb::Op::kAllGather:
      return CheckAllGather(c);
    case pb::Op::kCopyOut:
      return CheckReordering(c, op.copy_out().elems(), op.copy_out().dtype());
    case pb::Op::kJoinShards:
      RETURN_IF_ERROR(CheckParts(c, 1));
      return CheckReordering(c, op.join_shards().elems(), op.join_shards().dtype());
    case pb::Op::kKeepSlice:
      return CheckKeepSlice(c);
    case pb::Op::kCopyToDevice:
      return CheckCopy(c, op.copy_to_device().elems(), op.copy_to_device().dtype());
    case pb::Op::kLocalGather:
      return CheckLocalCopy(c, "gather", op.local_gather().elems(), op.local_gather().dtype());
    case pb::Op::kSplitGradient:
      return CheckSplitGradient(c);
    case pb::Op::kConcatGradients:
      return CheckConcat(c);
    case pb::Op::kReduceCopyIn:
      return CheckReduceCopyIn(c);
    case pb::Op::kReduceScatter:
      return CheckReduceScatter(c);
    case pb::Op::kLocalReduce:
      return CheckLocalCopy(c, "reduce", op.local_reduce().elems(), op.local_reduce().dtype());
    case pb::Op::kAllReduce:
      return CheckAllReduce(c);
    case pb::Op::kDivide:
      return CheckDivide(c);
    case pb::Op::kAddReduced: {
      ASSIGN_OR_RETURN(const int64_t bytes,
                       SizeIn(c, op.add_reduced().elems(), op.add_reduced().dtype()));
      return CheckAddition(c, 0, bytes);
    }
    case pb::Op::kGradFinalize:
      return CheckFinalize(c);
    case pb::Op::kCopyToHost:
      return CheckCopyToHost(c);
    default:
      return OkStatus();
  }
}

}  // namespace foreshard::plan_check
