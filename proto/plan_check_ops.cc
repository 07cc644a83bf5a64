// What can be said of an op by itself: indices, stream, waits, operands, sizes.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

template <typename Indices>
Status CheckIndices(const OpContext& c, std::string_view table, const Indices& indices, int size) {
  for (const int32_t index : indices) {
    if (!InTable(index, size)) {
      return c.Broken("index", fmt::format("{} {} of {}", table, index, size));
    }
  }
  return OkStatus();
}

Status CheckOpIndices(const OpContext& c) {
  const pb::Op& op = c.op();
  const int buffers = c.plan.buffers_size();
  RETURN_IF_ERROR(CheckIndices(c, "allocates buffer", op.allocs(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "frees buffer", op.frees(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "reads buffer", op.in(), buffers));
  RETURN_IF_ERROR(CheckIndices(c, "writes buffer", op.out(), buffers));
  if (op.has_unit() && !InTable(op.unit(), c.plan.units_size())) {
    return c.Broken("index", fmt::format("unit {} of {}", op.unit(), c.plan.units_size()));
  }
  if (op.has_module() && !InTable(op.module(), c.plan.modules_size())) {
    return c.Broken("index", fmt::format("module {} of {}", op.module(), c.plan.modules_size()));
  }
  if (op.phase() < pb::FORWARD || op.phase() > pb::Phase_MAX) {
    return c.Broken("phase", fmt::format("phase {} is none", static_cast<int>(op.phase())));
  }
  if (op.micro_batch() < 0) return c.Broken("phase", "the micro-batch is negative");
  if (op.in_versions_size() != 0 && op.in_versions_size() != op.in_size()) {
    return c.Broken("version", fmt::format("{} versions for {} buffers read", op.in_versions_size(),
                                           op.in_size()));
  }
  if (op.in_offsets_size() != 0 && op.in_offsets_size() != op.in_size()) {
    return c.Broken(
        "view", fmt::format("{} offsets for {} buffers read", op.in_offsets_size(), op.in_size()));
  }
  return OkStatus();
}

Status CheckOpStream(const OpContext& c) {
  const pb::Op& op = c.op();
  if (op.kind_case() == pb::Op::KIND_NOT_SET) {
    return c.Broken("kind", "says nothing to do; set one of the op kinds");
  }
  const bool works = !op.has_reshard() && !op.has_release() && !op.has_zero_grad();
  if (works != op.has_stream()) {
    return c.Broken("stream", works ? "puts work on a stream but names none"
                                    : "puts no work on a stream but names one");
  }
  if (op.has_stream() && !InTable(op.stream(), c.plan.streams_size())) {
    return c.Broken("index", fmt::format("stream {} of {}", op.stream(), c.plan.streams_size()));
  }
  if (!works && !(op.in().empty() && op.out().empty())) {
    return c.Broken("stream", "puts no work on a stream but reads or writes buffers");
  }
  return OkStatus();
}

Status CheckSettles(const OpContext& c) {
  for (const pb::Settle& settle : c.op().settles()) {
    if (!InTable(settle.buffer(), c.plan.buffers_size())) {
      return c.Broken(
          "index", fmt::format("settles buffer {} of {}", settle.buffer(), c.plan.buffers_size()));
    }
    if (settle.category() < pb::SHARDED_PARAM || settle.category() > pb::Category_MAX) {
      return c.Broken("settle", fmt::format("category {} of buffer {} is none",
                                            static_cast<int>(settle.category()), settle.buffer()));
    }
  }
  return OkStatus();
}

// Whether the op is a part of a gather or reduction, and so belongs to a unit.
bool MovesUnit(const pb::Op& op) {
  switch (op.kind_case()) {
    case pb::Op::kCastShard:
    case pb::Op::kGatherCopyIn:
    case pb::Op::kAllGather:
    case pb::Op::kCopyOut:
    case pb::Op::kReduceCopyIn:
    case pb::Op::kReduceScatter:
    case pb::Op::kGradFinalize:
    case pb::Op::kLocalGather:
    case pb::Op::kLocalReduce:
      return true;
    default:
      return false;
  }
}

template <typename Waits>
Status CheckWaitList(const OpContext& c, const Waits& waits) {
  for (const int32_t wait : waits) {
    if (wait < 0 || wait >= c.index) {
      return c.Broken("waits", fmt::format("waits for op {}, which is not earlier", wait));
    }
    if (!c.segment.ops(wait).has_stream()) {
      return c.Broken("waits", fmt::format("waits for op {}, which is on no stream", wait));
    }
  }
  return OkStatus();
}

// `elems` of `dtype` in bytes; refused when that is no size.
StatusOr<int64_t> SizeIn(const OpContext& c, int64_t elems, pb::DType dtype) {
  const std::optional<int64_t> bytes = Multiply(elems, ElementBytes(dtype));
  if (ElementBytes(dtype) == 0 || !bytes) {
    return c.Broken("collective", fmt::format("{} elements of dtype {} are no size", elems,
                                              static_cast<int>(dtype)));
  }
  return *bytes;
}

// A whole buffer: exactly `bytes`, as the messages on the wire must be.
Status Whole(const OpContext& c, int32_t buffer, int64_t bytes) {
  if (c.buffer(buffer).bytes() == bytes) return OkStatus();
  return c.Broken("collective", fmt::format("buffer {} has {} bytes, the op moves {}", buffer,
                                            c.buffer(buffer).bytes(), bytes));
}

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

Status CheckReduceScatter(const OpContext& c) {
  const pb::ReduceScatter& reduce = c.op().reduce_scatter();
  RETURN_IF_ERROR(CheckGroup(c, reduce.group(), reduce.elems_out(), reduce.elems_in()));
  RETURN_IF_ERROR(OneEach(c));
  if (reduce.reduction() != pb::ReduceScatter::SUM &&
      reduce.reduction() != pb::ReduceScatter::AVG) {
    return c.Broken("collective", "the reduction is neither SUM nor AVG");
  }
  ASSIGN_OR_RETURN(const int64_t whole, SizeIn(c, reduce.elems_in(), reduce.dtype()));
  ASSIGN_OR_RETURN(const int64_t part, SizeIn(c, reduce.elems_out(), reduce.dtype()));
  RETURN_IF_ERROR(Whole(c, c.op().in(0), whole));
  return Whole(c, c.op().out(0), part);
}

// Both copy one whole buffer into another.
Status CheckLocalCopy(const OpContext& c, std::string_view rule, int64_t elems, pb::DType dtype) {
  if (c.plan.mesh().shard_size() != 1) {
    return c.Broken(rule, fmt::format("is for groups of one rank, this one has {}",
                                      c.plan.mesh().shard_size()));
  }
  RETURN_IF_ERROR(OneEach(c));
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, elems, dtype));
  RETURN_IF_ERROR(Whole(c, c.op().in(0), bytes));
  return Whole(c, c.op().out(0), bytes);
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

Status OneOutput(const OpContext& c) {
  if (c.op().out_size() == 1) return OkStatus();
  return c.Broken("collective", fmt::format("writes {} buffers, expected one", c.op().out_size()));
}

// The gradient has as many elements as what was reduced; without an output it is that itself.
Status CheckFinalize(const OpContext& c) {
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

// Of AdamW per trainable parameter of the plan its step count, first and second moment, of SGD its
// momentum.
Status CheckOptimizerInit(const OpContext& c) {
  const pb::OptimizerKind kind = c.op().optimizer_init().kind();
  if (kind != pb::ADAMW && kind != pb::SGD) {
    return c.Broken("optimizer", "creates the state of an unknown optimizer");
  }
  const int64_t element = ElementBytes(c.plan.decisions().original_dtype());
  int i = 0;
  for (const pb::Parameter& p : c.plan.parameters()) {
    if (p.frozen()) continue;
    const int64_t moment = p.padded_shard_numel() * element;
    std::vector<int64_t> state = {moment};
    if (kind == pb::ADAMW) state = {4, moment, moment};
    for (const int64_t bytes : state) {
      if (i < c.op().out_size() && c.buffer(c.op().out(i)).bytes() != bytes) {
        return c.Broken("optimizer", fmt::format("buffer {} of parameter \"{}\" has {} bytes, "
                                                 "expected {}",
                                                 c.op().out(i), p.path(),
                                                 c.buffer(c.op().out(i)).bytes(), bytes));
      }
      ++i;
    }
  }
  if (i == c.op().out_size()) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("creates {} buffers of state, expected {}", c.op().out_size(), i));
}

// Kind, implementation and numbers are possible.
Status CheckOptimizerNumbers(const OpContext& c) {
  const pb::OptimizerStep& step = c.op().optimizer_step();
  const bool known = (step.kind() == pb::ADAMW || step.kind() == pb::SGD) &&
                     (step.impl() == pb::FUSED || step.impl() == pb::FOREACH);
  if (!known) return c.Broken("optimizer", "the optimizer or its implementation is unknown");
  for (const double number : {step.learning_rate(), step.beta1(), step.beta2(), step.eps(),
                              step.weight_decay(), step.momentum()}) {
    if (std::isfinite(number) && number >= 0) continue;
    return c.Broken("optimizer", fmt::format("is told {}, expected numbers, 0 or more", number));
  }
  if (step.kind() == pb::SGD || step.momentum() == 0) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("has momentum {}, expected it of SGD alone", step.momentum()));
}

Status CheckOptimizerStep(const OpContext& c) {
  RETURN_IF_ERROR(CheckOptimizerNumbers(c));
  // Of each parameter, the shard and its state.
  const pb::OptimizerStep& step = c.op().optimizer_step();
  const int buffers = step.kind() == pb::ADAMW ? 4 : step.momentum() > 0 ? 2 : 1;
  int64_t elems = 0;
  int outputs = 0;
  for (const pb::Parameter& p : c.plan.parameters()) {
    if (p.frozen()) continue;
    elems += p.padded_shard_numel();
    outputs += buffers;
  }
  if (c.op().optimizer_step().elems() != elems) {
    return c.Broken("optimizer", fmt::format("updates {} elements, the trainable shards have {}",
                                             c.op().optimizer_step().elems(), elems));
  }
  if (c.op().out_size() == outputs) return OkStatus();
  return c.Broken("optimizer",
                  fmt::format("writes {} buffers, expected {}", c.op().out_size(), outputs));
}

Status CheckCopies(const OpContext& c) {
  const pb::Op& op = c.op();
  if (op.has_cast_shard()) {
    const pb::CastShard& cast = op.cast_shard();
    ASSIGN_OR_RETURN(const int64_t from, SizeIn(c, cast.elems(), cast.from()));
    ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, cast.elems(), cast.to()));
    RETURN_IF_ERROR(Exactly(c, "read", op.in(), from));
    return Exactly(c, "written", op.out(), to);
  }
  if (op.has_gather_copy_in()) {
    ASSIGN_OR_RETURN(const int64_t bytes,
                     SizeIn(c, op.gather_copy_in().elems(), op.gather_copy_in().dtype()));
    RETURN_IF_ERROR(Exactly(c, "read", op.in(), bytes));
    return OneOutput(c);  // a part of it; the all-gather has its size
  }
  if (op.has_copy_out()) {
    ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, op.copy_out().elems(), op.copy_out().dtype()));
    RETURN_IF_ERROR(Exactly(c, "read", op.in(), bytes));
    return Exactly(c, "written", op.out(), bytes);
  }
  if (op.has_reduce_copy_in()) {
    const pb::ReduceCopyIn& copy = op.reduce_copy_in();
    if (copy.elems_in() > copy.elems_out()) {
      return c.Broken("collective", fmt::format("{} elements do not fit into {}", copy.elems_in(),
                                                copy.elems_out()));
    }
    RETURN_IF_ERROR(CheckGradients(c));
    ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, copy.elems_out(), copy.to()));
    return Exactly(c, "written", op.out(), to);
  }
  return OkStatus();
}

Status CheckKind(const OpContext& c) {
  const pb::Op& op = c.op();
  if (MovesUnit(op) && !op.has_unit()) return c.Broken("unit", "belongs to no unit");
  switch (op.kind_case()) {
    case pb::Op::kCompute:
      return CheckCompute(c);
    case pb::Op::kAllGather:
      return CheckAllGather(c);
    case pb::Op::kReduceScatter:
      return CheckReduceScatter(c);
    case pb::Op::kLocalGather:
      return CheckLocalCopy(c, "gather", op.local_gather().elems(), op.local_gather().dtype());
    case pb::Op::kLocalReduce:
      return CheckLocalCopy(c, "reduce", op.local_reduce().elems(), op.local_reduce().dtype());
    case pb::Op::kStreamWait:
      return CheckIndices(c, "waits for stream", op.stream_wait().on(), c.plan.streams_size());
    case pb::Op::kGradFinalize:
      return CheckFinalize(c);
    case pb::Op::kOptimizerInit:
      return CheckOptimizerInit(c);
    case pb::Op::kOptimizerStep:
      return CheckOptimizerStep(c);
    default:
      return CheckCopies(c);
  }
}

}  // namespace

Status CheckOps(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    for (int i = 0; i < segment.ops_size(); ++i) {
      const OpContext c{plan, segment, i};
      RETURN_IF_ERROR(CheckOpIndices(c));
      RETURN_IF_ERROR(CheckOpStream(c));
      RETURN_IF_ERROR(CheckWaitList(c, c.op().waits()));
      RETURN_IF_ERROR(CheckWaitList(c, c.op().host_waits()));
      RETURN_IF_ERROR(CheckSettles(c));
      RETURN_IF_ERROR(CheckKind(c));
    }
  }
  return CheckViewSizes(plan);
}

}  // namespace foreshard::plan_check
