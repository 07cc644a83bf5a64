// Training as it would be without any sharding: the one-rank reference that sharded runs are held
// against, bit by bit. Knows nothing of streams, gathers or shards; only the kernels are shared.
//
// A step runs the forward and backward of the one-rank plan once for each rank's micro-batch, with
// the same weights. Every gradient is cast to the reduce dtype, added in fp32 from rank 0 upwards,
// divided by the number of ranks, rounded to the reduce dtype and cast to the parameter's; then the
// optimizer updates whole tensors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "exec/data.h"
#include "exec/prepare.h"
#include "exec/weights.h"
#include "tests/testing/sequential.h"

namespace foreshard {

class OneRankReference {
 public:
  // `plan` is for one rank; `ranks` is how many micro-batches a step has. REQUIRES: all outlive it,
  // and `data` gives the inputs of the sharded plan, whose inputs are the same.
  OneRankReference(const pb::Plan& plan, int ranks, uint64_t seed,
                   const exec::WeightSource& weights, const exec::DataSource& data);

  // The losses of the ranks' micro-batches.
  std::vector<double> Step();
  // In the plan's order, in the parameters' dtype.
  const std::vector<std::vector<std::byte>>& weights() const { return weights_; }
  // Of the last step, by parameter; empty of frozen ones.
  const std::vector<std::vector<std::byte>>& gradients() const { return gradients_; }

 private:
  void Feed(int rank);
  void RunMicroBatch(int rank);
  void Gather(const pb::Op& op);
  void Collect(const pb::Op& op, int rank);
  void Average(int parameter);
  void Update();

  const pb::Plan& plan_;
  const int ranks_;
  const uint64_t seed_;
  const exec::DataSource& data_;
  SequentialRunner runner_;
  int64_t step_ = 0;
  double loss_ = 0;
  std::map<int, int> parameter_of_;  // by the buffer of its shard or its cast
  DType reduce_dtype_ = DType::kFp32;
  std::vector<std::vector<std::byte>> weights_;
  std::vector<std::vector<std::byte>> gradients_;
  std::vector<std::vector<float>> sums_;  // by parameter, over the ranks so far
  std::vector<std::vector<std::byte>> state_;
};

}  // namespace foreshard
