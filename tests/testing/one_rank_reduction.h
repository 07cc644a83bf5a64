// What becomes of one parameter's gradients in a step of several ranks and micro-batches, without
// shards: the arithmetic of every kind of reduction that can be asked for, written once
// more and in one place.
//
// A rank's gradients that are reduced in the last micro-batch only are added up before, in the
// reduce dtype or as autograd makes them. A gradient is rounded to the reduce dtype. It is divided
// by a factor (fp16), then the ranks of each replica are added in fp32 from the first upwards, each
// times another factor (a custom one), and divided by their number for a mean. Replicas are added
// likewise. Where ranks have all of a gradient, they may add the next one to what was reduced,
// which then is part of what is reduced next. Every result is rounded to the reduce dtype, the last
// one to that of the parameter.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/plan.h"
#include "proto/base/dtype.h"

namespace foreshard {

struct ReductionRules {
  int shards = 1;  // ranks of a replica
  int replicas = 1;
  int micro_batches = 1;
  bool reduce_in_last_only = false;
  bool adds_as_made = false;
  bool adds_to_reduced = false;  // a rank adds to what was reduced before, and all of that is again
  bool all_reduce_in_last_only = false;
  float divisor_before = 1;
  float divisor_between = 1;  // shards and replicas
  float divisor_after = 1;
  float factor = 1;  // of each rank's part
  bool is_mean_of_shards = true;
  bool is_mean_of_replicas = true;
  DType reduce = DType::kFp32;
  DType original = DType::kFp32;
};

// `reduce` is the dtype that the request comes to.
ReductionRules RulesOf(const PlanRequest& request, DType reduce);

class ReducedGradient {
 public:
  ReducedGradient() = default;
  explicit ReducedGradient(const ReductionRules& rules)
      : rules_(rules), ranks_(rules.shards * rules.replicas), partial_(rules.replicas) {}

  // Of the next micro-batch of one rank, which autograd has made in `made`; ranks take turns from 0
  // on.
  void Add(int rank, std::vector<float> gradient, DType made);
  // All ranks have added those of a micro-batch.
  void EndMicroBatch(int micro_batch);
  // In the parameter's dtype, after the last.
  std::vector<std::byte> Take();

 private:
  using Floats = std::vector<float>;
  Floats SumOfShards(int replica) const;
  Floats SumOfReplicas(const std::vector<Floats>& replicas) const;

  ReductionRules rules_;
  std::vector<Floats> ranks_;    // gradients that have not been reduced
  std::vector<Floats> partial_;  // by replica; reduced, and not yet added to other replicas'
  Floats gradient_;
};

}  // namespace foreshard
