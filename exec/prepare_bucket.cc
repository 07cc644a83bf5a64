// What moves where every rank has all parameters: gradients into buckets and back, and parameters
// from the rank that has updated them.
#include <fmt/format.h>

#include "exec/prepare_parts.h"

namespace foreshard::exec {
namespace {

DType Type(pb::DType dtype) { return static_cast<DType>(dtype); }

// Elements from `first` on are inside the buffer.
Status Inside(const OpContext& c, int buffer, int64_t first, int64_t numel, DType dtype) {
  if ((first + numel) * SizeOf(dtype) <= c.buffer_bytes[buffer]) return OkStatus();
  return InvalidPlan(fmt::format("works on elements {} to {} of buffer {}, which holds {} bytes",
                                 first, first + numel, buffer, c.buffer_bytes[buffer]));
}

StatusOr<Work> CopyIn(const OpContext& c) {
  const pb::BucketCopyIn& op = c.op.bucket_copy_in();
  ScaleInto scale;
  scale.dtype = Type(op.dtype());
  scale.numel = c.shards.numel(op.parameter());
  scale.from = c.op.in_offsets().empty() ? 0 : c.op.in_offsets(0);
  scale.to = op.offset();
  scale.factor = op.factor();
  scale.accumulates = op.accumulate();
  RETURN_IF_ERROR(Inside(c, c.op.in(0), scale.from, scale.numel, scale.dtype));
  RETURN_IF_ERROR(Inside(c, c.op.out(0), scale.to, scale.numel, scale.dtype));
  return Work(scale);
}

StatusOr<Work> CopyOut(const OpContext& c) {
  const pb::BucketCopyOut& op = c.op.bucket_copy_out();
  const DType dtype = Type(op.dtype());
  const int64_t numel = c.shards.numel(op.parameter());
  RETURN_IF_ERROR(Inside(c, c.op.in(0), op.offset(), numel, dtype));
  RETURN_IF_ERROR(Inside(c, c.op.out(0), 0, numel, dtype));
  return Work(CopyElements{{dtype}, dtype, {{0, 0, op.offset(), 0, numel}}});
}

StatusOr<Work> Broadcast(const OpContext& c) {
  const pb::Broadcast& op = c.op.broadcast();
  RETURN_IF_ERROR(Inside(c, c.op.out(0), 0, op.elems(), Type(op.dtype())));
  return Work(SendToAll{op.group(), op.root(), op.elems(), Type(op.dtype())});
}

}  // namespace

StatusOr<Work> BucketWorkOf(const OpContext& c) {
  if (c.op.has_bucket_copy_in()) return CopyIn(c);
  if (c.op.has_bucket_copy_out()) return CopyOut(c);
  return Broadcast(c);
}

}  // namespace foreshard::exec
