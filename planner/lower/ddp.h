// DistributedDataParallel's rules: every rank has all parameters, gradients are copied into
// buckets, and a bucket is all-reduced as soon as the last of its gradients is there. Sources, and
// what was measured: docs/ddp.md.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "planner/lower/sharding_rules.h"

namespace foreshard {

class Ddp : public ShardingRules {
 public:
  // REQUIRES: one unit, which has all parameters.
  Ddp(Eager& eager, const ModelGraph& graph, std::vector<UnitLayout> layouts,
      const Sharding& sharding, const pb::DdpOptions& options);

  const Tensor& parameter(int index) const override { return parameters_[index]; }
  // Of every trainable parameter, in the plan's order.
  const std::vector<Gradient>& gradients() const override { return left_; }
  const std::vector<UnitLayout>& layouts() const override { return layouts_; }
  // Buckets stay.
  bool frees_gradients() const override { return !options_.gradient_as_bucket_view(); }

  void BeginMicroBatch(const BackwardRules& rules) override;
  std::string State() const override;
  void EndStep() override;

  void BeforeForward(int, std::span<Tensor*>) override {}
  void AfterForward(int, std::span<Tensor* const>) override {}

  // ---- autograd
  void BeforeNode(int) override {}
  void AtPoint(int) override {}
  void ParameterGradient(int parameter, Tensor gradient, bool summed) override;
  DType GradientDType(int, DType, DType parameter_dtype) const override { return parameter_dtype; }
  void AtEnd() override;

 private:
  struct Bucket {
    std::vector<int> parameters;
    BufferId buffer = -1;
    int missing = 0;  // gradients of this backward
    OpId reduced = kNoOp;
  };
  // Where a parameter's gradient is reduced.
  struct Place {
    int bucket = 0;
    int64_t offset = 0;
  };
  // What there is of a parameter's gradient between micro-batches.
  struct GradientState {
    Tensor own;  // autograd's, where it is no part of a bucket
    bool is_view = false;
  };

  int64_t Numel(int parameter) const { return parameters_[parameter].numel(); }
  int64_t Numel(const Bucket& bucket) const;
  void MakeBuckets(const std::vector<int>& order, const std::vector<int64_t>& limits);
  void AllocateBuckets();
  void RebuildBuckets();
  void MoveViews(const std::vector<Bucket>& old, const std::vector<Place>& places);
  pb::BucketCopyIn& Copy(int parameter, std::initializer_list<BufferId> in,
                         std::initializer_list<int64_t> offsets, double factor);
  void CopyIn(int parameter, const Tensor& gradient);
  void ReduceComplete();
  void CopyOut(const Bucket& bucket);
  void LeaveGradients();

  Eager& eager_;
  PlanBuilder& builder_;
  const std::vector<UnitLayout> layouts_;
  const Sharding sharding_;
  const pb::DdpOptions options_;
  std::vector<Tensor> parameters_;
  std::vector<int> trainable_;  // in the plan's order
  std::vector<GradientState> gradients_;
  std::vector<Place> places_;  // per parameter
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;    // to be reduced: buckets go in order
  std::vector<int> arrived_;  // parameters in the order of their first reduced gradients
  bool rebuilt_ = false;
  BackwardRules backward_;
  std::vector<Gradient> left_;
};

}  // namespace foreshard
