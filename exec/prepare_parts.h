// The parts of preparing a plan; for exec/prepare*.cc only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/prepare.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {

// How a plan's parameters are cut, seen from one rank.
class ShardMap {
 public:
  ShardMap(const pb::Plan& plan, int rank);

  int ranks() const { return ranks_; }
  int shard_rank() const { return shard_rank_; }
  int64_t numel(int parameter) const;         // unsharded
  int64_t padded_numel(int parameter) const;  // of the shard of every rank
  int64_t local_numel(int parameter) const;   // real elements of this rank
  DType dtype(int parameter) const;
  // Trainable parameters of a unit in layout order.
  std::vector<int> Trainable(int unit) const;
  // Trainable parameters in the plan's order.
  std::vector<int> Trainable() const;

 private:
  const pb::Plan& plan_;
  int ranks_;
  int shard_rank_;
};

// Bytes of every buffer on one rank. REQUIRES: as for Prepare.
StatusOr<std::vector<int64_t>> DeriveBufferBytes(const pb::Plan& plan, const ShardMap& shards);

// Bytes from a buffer's first byte to the last that the tensor touches, from element `offset` on.
int64_t Extent(const pb::TensorType& type, int64_t offset);

// Buffers that the op allocates and frees and neither reads nor writes, in the plan's order.
std::vector<int> ScratchOf(const pb::Op& op);

// Where an op stands, for messages.
std::string PlaceOf(const pb::Plan& plan, const pb::Segment& segment, int op);

// What an op does. Errors: kInvalidPlan when its buffers do not hold what it needs.
StatusOr<Work> WorkOf(const pb::Plan& plan, const ShardMap& shards,
                      std::span<const int64_t> buffer_bytes, const pb::Op& op);
StatusOr<UpdateParameters> UpdateOf(const pb::Plan& plan, const ShardMap& shards,
                                    std::span<const int64_t> buffer_bytes, const pb::Op& op);

}  // namespace foreshard::exec
