// How a plan's parameters are cut, seen from one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/base/dtype.h"

namespace foreshard::pb {
class Flat;
class Plan;
}  // namespace foreshard::pb

namespace foreshard::exec {

class ShardMap {
 public:
  // REQUIRES: the plan outlives it.
  ShardMap(const pb::Plan& plan, int rank);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int shard_rank() const { return shard_rank_; }
  int64_t numel(int parameter) const;  // unsharded
  // Of the shard of every rank. REQUIRES: the parameter is not a part of a flat one.
  int64_t padded_numel(int parameter) const;
  int64_t local_numel(int parameter) const;  // real elements of this rank
  // Where they start in the sharded buffer, elements: only parts of a flat parameter have others
  // before them.
  int64_t local_offset(int parameter) const;
  // Elements of its sharded buffer, padding and all that shares it included.
  int64_t buffer_numel(int parameter) const;
  // Where they stand in the whole tensor: `count` runs of `numel` elements, `step` apart. REQUIRES:
  // there are any.
  struct Runs {
    int64_t first = 0, numel = 0, count = 1, step = 0;
  };
  Runs LocalRuns(int parameter) const;
  DType dtype(int parameter) const;
  // The place of this rank among those of a group that it is in.
  int Member(int group) const;

  bool IsFlat(int unit) const;
  // Elements of a flat parameter that each rank keeps. REQUIRES: the unit has one.
  int64_t FlatShardNumel(int unit) const;
  // Trainable parameters of a unit in layout order.
  std::vector<int> Trainable(int unit) const;
  // Trainable parameters in the plan's order.
  std::vector<int> Trainable() const;

  // What an optimizer updates: this rank's elements of a parameter, or all of a flat one's shard.
  struct Tensor {
    int parameter = 0;  // the first of the unit that is trained where it is all of a shard
    int64_t first = 0;  // elements into the sharded buffer
    int64_t numel = 0;
    bool is_whole_shard = false;
    bool has_state = true;
  };
  // In the order in which the plan lists their shards and states: shards of units, then parameters.
  std::vector<Tensor> Tensors() const;
  // Elements of the squared norms that the ranks of a shard group add up: one for each tensor, but
  // of flat parameters one in all.
  int64_t SquaredNorms() const;
  // The same; what another rank updates for this one has no elements.
  std::vector<Tensor> UpdatedTensors() const;

 private:
  const pb::Flat* FlatOf(int parameter) const;  // nullptr = none
  // Elements of a flat parameter's part that come before this rank's shard.
  int64_t BeforeShard(int parameter) const;

  const pb::Plan& plan_;
  int rank_;
  int ranks_;
  int shard_rank_;
};

}  // namespace foreshard::exec
