// The checks of single ops. Internal to proto/plan_check*.cc.
#pragma once

#include <string_view>
#include <vector>

#include "proto/base/status.h"
#include "proto/plan.pb.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {

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

// `elems` of `dtype` in bytes; refused when that is no size.
StatusOr<int64_t> SizeIn(const OpContext& c, int64_t elems, pb::DType dtype);

// A whole buffer: exactly `bytes`, as the messages on the wire must be.
Status Whole(const OpContext& c, int32_t buffer, int64_t bytes);

// Whether the op is a part of a gather or reduction, and so belongs to a unit.
bool MovesUnit(const pb::Op& op);

// Sizes, and what else an op that MovesUnit (or an all_reduce of CLIP) says of itself. REQUIRES:
// its buffers are in their table, and its unit if it has to have one.
Status CheckMove(const OpContext& c);

// What ops of clipping and the optimizer say of themselves: rules clip and optimizer. REQUIRES: its
// buffers are in their table.
Status CheckUpdate(const OpContext& c);

// The op joins gradients of its unit's flat parameter. REQUIRES: its buffers are in their table,
// and it has a unit.
Status CheckConcat(const OpContext& c);

// A view of a flat parameter lies inside one of the parameters. `end` is the byte where it ends.
Status CheckFlatView(const OpContext& c, const pb::TensorType& type, int32_t buffer, int64_t offset,
                     int64_t end);

// What the optimizer takes for a tensor on rank 0: the shard of a trainable parameter, a flat
// parameter, or the part of one that belongs to a trainable parameter.
struct OptimizerTensor {
  std::string_view name;
  int32_t shard = 0;  // buffer
  int64_t numel = 0;  // with padding, but for parts
  bool is_part = false;
};
// In the order in which the optimizer sees them. REQUIRES: CheckTables and CheckLayout.
std::vector<OptimizerTensor> OptimizerTensors(const pb::Plan& plan);

// Rules bucket, broadcast and owner, as far as an op says it by itself.
Status CheckBucketMove(const OpContext& c);
bool MovesBucket(const pb::Op& op);

// Rule owner, of an optimizer_step.
Status CheckOwners(const OpContext& c);
// ... and of a buffer of the state of a parameter that `owner` updates.
Status CheckStateOfOwner(const OpContext& c, int32_t buffer, int owner, int64_t bytes);
// Elements that rank 0 updates; with owners, the rank with most. REQUIRES: CheckOwners.
int64_t UpdatedElems(const OpContext& c);

// Rule host. REQUIRES: the op's buffers and stream are in their tables.
Status CheckHost(const OpContext& c);

// The op's kernel exists, and every operand and result lies inside its buffer. REQUIRES: its
// buffers are in their table.
Status CheckCompute(const OpContext& c);

// What kernels write is as large as the largest view of it. REQUIRES: CheckCompute for every op.
Status CheckViewSizes(const pb::Plan& plan);

}  // namespace foreshard::plan_check
