// Training as it would be without any sharding: the one-rank reference that sharded runs are held
// against, bit by bit. Knows nothing of streams, gathers or shards; only the kernels are shared.
//
// A step runs the forward and backward of the one-rank plan once for each rank and micro-batch,
// with the same weights, adds up the gradients (one_rank_reduction.h) and updates whole tensors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "exec/data.h"
#include "exec/prepare.h"
#include "exec/weights.h"
#include "tests/testing/one_rank_reduction.h"
#include "tests/testing/sequential.h"

namespace foreshard {

class OneRankReference {
 public:
  // `plan` is for one rank and one micro-batch, `request` asks for several. REQUIRES: all outlive
  // it, and `data` gives the inputs of the sharded plan, whose inputs are the same.
  OneRankReference(const pb::Plan& plan, const PlanRequest& request, uint64_t seed,
                   const exec::WeightSource& weights, const exec::DataSource& data);

  // The losses by micro-batch, each the mean over the ranks.
  std::vector<double> Step();
  // In the plan's order, in the parameters' dtype.
  const std::vector<std::vector<std::byte>>& weights() const { return weights_; }
  // Of the last step, by parameter; empty of frozen ones.
  const std::vector<std::vector<std::byte>>& gradients() const { return gradients_; }

 private:
  void Feed(int rank, int micro_batch);
  void RunMicroBatch(int rank);
  void Gather(const pb::Op& op);
  void Collect(const pb::Op& op, int rank);
  void Update();

  const pb::Plan& plan_;
  const int ranks_;
  ReductionRules rules_;
  const uint64_t seed_;
  const exec::DataSource& data_;
  SequentialRunner runner_;
  int64_t step_ = 0;
  double loss_ = 0;
  std::map<int, int> parameter_of_;  // by the buffer of its shard or its cast
  std::vector<std::vector<std::byte>> weights_;
  std::vector<std::vector<std::byte>> gradients_;
  std::map<int, ReducedGradient> sums_;  // by trainable parameter
  std::vector<std::vector<std::byte>> state_;
};

}  // namespace foreshard
