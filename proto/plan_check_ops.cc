// What can be said of an op by itself: indices, stream, waits, operands and views, sizes.
#include <fmt/format.h>

#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

// An op and how to name it in a message.
struct OpContext {
  const pb::Plan& plan;
  const pb::Segment& segment;
  int index;

  const pb::Op& op() const { return segment.ops(index); }
  const pb::Buffer& buffer(int32_t i) const { return plan.buffers(i); }
  Status Broken(std::string_view rule, std::string_view what) const {
    return plan_check::Broken(rule, OpPlace(plan, segment, index), what);
  }
};

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
  if (op.phase() < pb::FORWARD || op.phase() > pb::ZERO_GRAD) {
    return c.Broken("phase", fmt::format("phase {} is none", static_cast<int>(op.phase())));
  }
  if (op.micro_batch() < 0) return c.Broken("phase", "the micro-batch is negative");
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
  return OkStatus();
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

// Bytes from the start of a buffer to the end of a view's last element; 0 for a view of nothing.
std::optional<int64_t> ViewEnd(const pb::TensorType& type, int64_t offset) {
  const std::optional<int64_t> numel = Numel(type.shape());
  if (!numel || offset < 0) return std::nullopt;
  if (*numel == 0) return 0;
  int64_t last = offset;
  if (type.strides().empty()) {
    if (__builtin_add_overflow(last, *numel - 1, &last)) return std::nullopt;
  }
  for (int i = 0; i < type.strides_size(); ++i) {
    const std::optional<int64_t> reach = Multiply(type.shape(i) - 1, type.strides(i));
    if (!reach || __builtin_add_overflow(last, *reach, &last)) return std::nullopt;
  }
  int64_t elements = 0;
  if (__builtin_add_overflow(last, int64_t{1}, &elements)) return std::nullopt;
  return Multiply(elements, ElementBytes(type.dtype()));
}

Status CheckView(const OpContext& c, const pb::TensorType& type, int32_t buffer, int64_t offset) {
  const std::optional<int64_t> end = ViewEnd(type, offset);
  const int64_t bytes = c.buffer(buffer).bytes();
  if (end && *end <= bytes) return OkStatus();
  return c.Broken("view", fmt::format("its view of buffer {} ends at byte {}, the buffer at {}",
                                      buffer, end ? fmt::to_string(*end) : "2^62 or more", bytes));
}

Status CheckCompute(const OpContext& c) {
  const pb::Op& op = c.op();
  RETURN_IF_ERROR(CheckIndices(c, "kernel", std::initializer_list<int32_t>{op.compute().kernel()},
                               c.plan.kernels_size()));
  const pb::Kernel& kernel = c.plan.kernels(op.compute().kernel());
  if (op.in_size() != kernel.operands_size() || op.out_size() != kernel.results_size()) {
    return c.Broken("kernel", fmt::format("{} buffers read and {} written, the kernel has {} "
                                          "operands and {} results",
                                          op.in_size(), op.out_size(), kernel.operands_size(),
                                          kernel.results_size()));
  }
  for (int i = 0; i < op.in_size(); ++i) {
    const int64_t offset = op.in_offsets_size() ? op.in_offsets(i) : 0;
    RETURN_IF_ERROR(CheckView(c, kernel.operands(i), op.in(i), offset));
  }
  for (int i = 0; i < op.out_size(); ++i) {
    RETURN_IF_ERROR(CheckView(c, kernel.results(i), op.out(i), 0));
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

template <typename Buffers>
Status AtLeast(const OpContext& c, std::string_view role, const Buffers& buffers, int64_t bytes) {
  int64_t total = 0;
  for (const int32_t buffer : buffers) {
    // A list may repeat a buffer, so the sum needs its own bound.
    if (total < bytes) total += c.buffer(buffer).bytes();
  }
  if (total >= bytes) return OkStatus();
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
    elems += c.plan.buffers(op.in(i)).bytes() / size;
  }
  if (elems >= copy.elems_in()) return OkStatus();
  return c.Broken("collective", fmt::format("its gradients hold {} elements, the op moves {}",
                                            elems, copy.elems_in()));
}

Status CheckCopies(const OpContext& c) {
  const pb::Op& op = c.op();
  if (op.has_cast_shard()) {
    const pb::CastShard& cast = op.cast_shard();
    ASSIGN_OR_RETURN(const int64_t from, SizeIn(c, cast.elems(), cast.from()));
    ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, cast.elems(), cast.to()));
    RETURN_IF_ERROR(AtLeast(c, "read", op.in(), from));
    return AtLeast(c, "written", op.out(), to);
  }
  if (op.has_gather_copy_in()) {
    ASSIGN_OR_RETURN(const int64_t bytes,
                     SizeIn(c, op.gather_copy_in().elems(), op.gather_copy_in().dtype()));
    RETURN_IF_ERROR(AtLeast(c, "read", op.in(), bytes));
    return AtLeast(c, "written", op.out(), bytes);
  }
  if (op.has_copy_out()) {
    ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, op.copy_out().elems(), op.copy_out().dtype()));
    RETURN_IF_ERROR(AtLeast(c, "read", op.in(), bytes));
    return AtLeast(c, "written", op.out(), bytes);
  }
  if (op.has_reduce_copy_in()) {
    const pb::ReduceCopyIn& copy = op.reduce_copy_in();
    if (copy.elems_in() > copy.elems_out()) {
      return c.Broken("collective", fmt::format("{} elements do not fit into {}", copy.elems_in(),
                                                copy.elems_out()));
    }
    RETURN_IF_ERROR(CheckGradients(c));
    ASSIGN_OR_RETURN(const int64_t to, SizeIn(c, copy.elems_out(), copy.to()));
    return AtLeast(c, "written", op.out(), to);
  }
  return OkStatus();
}

Status CheckKind(const OpContext& c) {
  const pb::Op& op = c.op();
  switch (op.kind_case()) {
    case pb::Op::kCompute:
      return CheckCompute(c);
    case pb::Op::kAllGather:
      return CheckAllGather(c);
    case pb::Op::kReduceScatter:
      return CheckReduceScatter(c);
    case pb::Op::kStreamWait:
      return CheckIndices(c, "waits for stream", op.stream_wait().on(), c.plan.streams_size());
    case pb::Op::kOptimizerStep:
      if (op.optimizer_step().elems() >= 0) return OkStatus();
      return c.Broken("optimizer", "updates a negative number of elements");
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
      RETURN_IF_ERROR(CheckKind(c));
    }
  }
  return OkStatus();
}

}  // namespace foreshard::plan_check
