// The parts of preparing a plan; for exec/prepare*.cc only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/prepare.h"
#include "exec/shard_map.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// Bytes of every buffer on one rank. REQUIRES: as for Prepare.
StatusOr<std::vector<int64_t>> DeriveBufferBytes(const pb::Plan& plan, const ShardMap& shards);

// Bytes from a buffer's first byte to the last that the tensor touches, from element `offset` on.
int64_t Extent(const pb::TensorType& type, int64_t offset);

// Buffers that the op allocates and frees and neither reads nor writes, in the plan's order.
std::vector<int> ScratchOf(const pb::Op& op);

// Where an op stands, for messages.
std::string PlaceOf(const pb::Plan& plan, const pb::Segment& segment, int op);

// The group of the all-gather for which op `index` copies in, or whose output it copies out.
StatusOr<int> GroupOfGather(const pb::Plan& plan, const pb::Segment& segment, int index);

// An op and what it is prepared from.
struct OpContext {
  const pb::Plan& plan;
  const ShardMap& shards;
  std::span<const int64_t> buffer_bytes;
  const pb::Segment& segment;
  int index;
  const pb::Op& op;  // the segment's `index`-th
};

// kInvalidPlan unless the buffer has exactly these elements.
Status Holds(const OpContext& context, int buffer, int64_t elems, DType dtype);

// What an op does. Errors: kInvalidPlan when its buffers do not hold what it needs.
StatusOr<Work> WorkOf(const OpContext& context);
// The same of the ops between a unit's shards and its parameters.
StatusOr<Work> GatherWorkOf(const OpContext& context);
// The same of the ops between a unit's gradients and what the optimizer reads.
StatusOr<Work> ReduceWorkOf(const OpContext& context);
// The same of buckets and broadcasts.
StatusOr<Work> BucketWorkOf(const OpContext& context);
// All of every buffer of `in`, one behind the other, from element `to` of `out` on.
StatusOr<Work> Concatenate(const OpContext& context, DType from, DType dtype, int64_t to,
                           int64_t expected);
// The same of clipping and of the optimizer.
StatusOr<Work> UpdateWorkOf(const OpContext& context);

}  // namespace foreshard::exec
