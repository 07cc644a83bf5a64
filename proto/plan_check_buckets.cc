// What copies into and out of buckets and broadcasts say of themselves: rules bucket and broadcast.
#include <fmt/format.h>

#include <cmath>

#include "proto/plan_check_op.h"

namespace foreshard::plan_check {
namespace {

Status Counts(const OpContext& c, int in, int out) {
  if (c.op().in_size() == in && c.op().out_size() == out) return OkStatus();
  return c.Broken("collective", fmt::format("reads {} and writes {} buffers, expected {} and {}",
                                            c.op().in_size(), c.op().out_size(), in, out));
}

Status HasAllElements(const OpContext& c, int32_t parameter, int64_t elems) {
  if (!InTable(parameter, c.plan.parameters_size())) {
    return c.Broken("index",
                    fmt::format("parameter {} of {}", parameter, c.plan.parameters_size()));
  }
  const pb::Parameter& p = c.plan.parameters(parameter);
  if (p.frozen()) {
    return c.Broken("bucket", fmt::format("parameter \"{}\" is not trained", p.path()));
  }
  if (Numel(p.shape()) == elems) return OkStatus();
  return c.Broken("bucket",
                  fmt::format("moves {} elements, not those of parameter \"{}\"", elems, p.path()));
}

// `elems` elements from `offset` on lie inside the buffer.
Status Inside(const OpContext& c, int32_t buffer, int64_t offset, int64_t elems, pb::DType dtype) {
  ASSIGN_OR_RETURN(const int64_t size, SizeIn(c, 1, dtype));
  const int64_t there = c.buffer(buffer).bytes() / size;
  if (offset >= 0 && offset <= there && elems <= there - offset) return OkStatus();
  return c.Broken("bucket", fmt::format("elements {} to {} of buffer {} are not inside its {}",
                                        offset, offset + elems, buffer, there));
}

Status CheckCopyIn(const OpContext& c) {
  const pb::Op& op = c.op();
  const pb::BucketCopyIn& copy = op.bucket_copy_in();
  RETURN_IF_ERROR(Counts(c, copy.accumulate() ? 2 : 1, 1));
  RETURN_IF_ERROR(HasAllElements(c, copy.parameter(), copy.elems()));
  if (!std::isfinite(copy.factor()) || copy.factor() <= 0) {
    return c.Broken(
        "bucket", fmt::format("multiplies by {}, expected a finite number above 0", copy.factor()));
  }
  const int64_t from = op.in_offsets().empty() ? 0 : op.in_offsets(0);
  RETURN_IF_ERROR(Inside(c, op.in(0), from, copy.elems(), copy.dtype()));
  RETURN_IF_ERROR(Inside(c, op.out(0), copy.offset(), copy.elems(), copy.dtype()));
  const bool same = op.in_offsets().size() < 2 || op.in_offsets(1) == copy.offset();
  if (!copy.accumulate() || (op.in(1) == op.out(0) && same)) return OkStatus();
  return c.Broken("bucket", "does not add to the part of the bucket that it writes");
}

Status CheckCopyOut(const OpContext& c) {
  const pb::BucketCopyOut& copy = c.op().bucket_copy_out();
  RETURN_IF_ERROR(Counts(c, 1, 1));
  RETURN_IF_ERROR(HasAllElements(c, copy.parameter(), copy.elems()));
  RETURN_IF_ERROR(Inside(c, c.op().in(0), copy.offset(), copy.elems(), copy.dtype()));
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, copy.elems(), copy.dtype()));
  return Whole(c, c.op().out(0), bytes);
}

Status CheckBroadcast(const OpContext& c) {
  const pb::Broadcast& send = c.op().broadcast();
  RETURN_IF_ERROR(Counts(c, 1, 1));
  if (!InTable(send.group(), c.plan.groups_size())) {
    return c.Broken("index", fmt::format("group {} of {}", send.group(), c.plan.groups_size()));
  }
  const pb::Group& group = c.plan.groups(send.group());
  const pb::Mesh& mesh = c.plan.mesh();
  if (group.size() != mesh.replicate_size() || group.stride() != mesh.shard_size()) {
    return c.Broken(
        "broadcast",
        fmt::format("is over {} ranks with stride {}, expected {} with stride {}", group.size(),
                    group.stride(), mesh.replicate_size(), mesh.shard_size()));
  }
  if (!InTable(send.root(), group.size())) {
    return c.Broken("broadcast",
                    fmt::format("the root is {} of {} ranks", send.root(), group.size()));
  }
  if (c.op().in(0) != c.op().out(0)) return c.Broken("broadcast", "does not work in place");
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, send.elems(), send.dtype()));
  return Whole(c, c.op().out(0), bytes);
}

}  // namespace

bool MovesBucket(const pb::Op& op) {
  return op.has_bucket_copy_in() || op.has_bucket_copy_out() || op.has_broadcast();
}

Status CheckBucketMove(const OpContext& c) {
  if (c.op().has_bucket_copy_in()) return CheckCopyIn(c);
  if (c.op().has_bucket_copy_out()) return CheckCopyOut(c);
  return CheckBroadcast(c);
}

}  // namespace foreshard::plan_check
