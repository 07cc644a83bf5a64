// FSDP1's rules (torch.distributed.fsdp.FullyShardedDataParallel): all parameters of a unit are one
// flat parameter. The program that this reproduces is _runtime_utils.py; functions here are named
// after what those there do, and docs/fsdp1.md tells the order of events.
//
//   fsdp1.cc         hooks: which unit is gathered, resharded and reduced when
//   fsdp1_gather.cc  how a flat parameter is gathered and given back, and how far the host runs
//   ahead fsdp1_reduce.cc  how its gradient is joined, reduced and accumulated
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "planner/lower/sharding_rules.h"

namespace foreshard {

class Fsdp1 : public ShardingRules {
 public:
  Fsdp1(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
        std::vector<UnitLayout> layouts, const Sharding& sharding, pb::Strategy strategy,
        const pb::Fsdp1Options& options);

  const Tensor& parameter(int index) const override { return parameters_[index]; }
  const std::vector<Gradient>& gradients() const override { return gradients_; }
  const std::vector<UnitLayout>& layouts() const override { return layouts_; }
  // The flat gradient outlives those of the parameters, which are views of it; with offload it is a
  // buffer of the library's.
  bool frees_gradients() const override { return !options_.use_orig_params() && !offloads(); }

  void BeginMicroBatch(const BackwardRules& rules) override;
  std::string State() const override;
  void EndStep() override;

  void BeforeForward(int unit, std::span<Tensor*> args) override;
  void AfterForward(int unit, std::span<Tensor* const> results) override;

  // ---- autograd
  void BeforeNode(int hook) override;  // of a unit's output; of its inputs from units_.size() on
  void AtPoint(int) override {}
  void ParameterGradient(int leaf, Tensor gradient, bool summed) override;
  DType GradientDType(int, DType made, DType) const override { return made; }
  Tensor JoinGradients(int unit, std::span<Tensor> gradients) override;
  void AtEnd() override;

 private:
  enum class Training { kIdle, kForward, kPreBackward, kPostBackward };
  // Of a unit's flat parameter.
  struct UnitState {
    Tensor flat;  // what kernels read: the gathered parameter, or all there is
    BufferId unsharded = -1;
    bool is_unsharded = false;
    BufferId cast = -1;      // the shard in the compute dtype, or its copy on the device
    bool uses_shard = true;  // what flat_param.data is
    Training training = Training::kIdle;
    bool prefetched = false;
    bool awaits_forward = false;   // _needs_pre_forward_unshard
    bool awaits_backward = false;  // _needs_pre_backward_unshard
    bool ran_pre_backward = false;
    int pre_forward_place = kNone;   // in pre_forward_order_
    int post_forward_place = kNone;  // in post_forward_order_
    int last_leaf = kNone;           // that gradients of its uses go to
    int hooked_leaf = kNone;         // whose gradient ends the unit's backward
    int inputs_to_come = kNone;      // gradients of inputs that a frozen unit waits for
    Tensor gradient;                 // flat_param.grad while it is not sharded
    OpId gradient_op = kNoOp;        // the last to write it
    BufferId sharded_gradient = -1;  // of this step
    std::vector<BufferId> results;   // buffers that have been a gradient of a step
    BufferId host_gradient = -1;
    int event = kNone;
    int records = 0;  // of the event
  };
  struct Free {
    int unit;
    int record;  // the how manieth of the unit's event
  };

  bool HasParameters(int unit) const { return !layouts_[unit].parameters.empty(); }
  bool IsSharded() const { return strategy_ != pb::NO_SHARD; }
  bool IsMixed() const { return sharding_.compute != sharding_.original; }
  bool offloads() const { return sharding_.offloads; }
  bool FreesAfterForward(int unit) const;
  bool FreesInBackward() const;

  // ---- hooks
  void InitializeLazily();
  void AllocateHostGradients();
  void RootForward(std::span<Tensor*> args);
  void DropStaleGradients();
  void RecordPreForward(int unit);
  void RecordPostForward(int unit);
  void RegisterPostBackward(int unit, std::span<Tensor*> args);
  void PreBackward(int unit);
  void ReshardOnly(int unit);
  void PostBackward(int unit);
  void PostBackwardReshard(int unit);
  void PrefetchForward(int unit);
  void PrefetchBackward(int unit);
  void Prefetch(int unit, Training training, pb::AllGather::Reason reason);
  void FinishReductions();

  // ---- gather
  void Unshard(int unit, pb::AllGather::Reason reason);
  void PreUnshard(int unit);
  void AwaitFree(pb::Op& op);
  bool MustAwaitFree() const;
  void Gather(int unit, pb::AllGather::Reason reason);
  void UseViews(int unit);
  int LeafOf(int unit);
  void WaitForUnshard();
  void Reshard(int unit, bool frees);
  void FreeCast(int unit, StreamId used_on);
  void RecordFree(int unit, pb::Op& op);

  // ---- reduce
  struct Reduction;
  void MarkPartGradient(int unit, const Tensor& gradient);
  BufferId FlatGradientBuffer(int unit);
  BufferId ResultBuffer(int unit, int64_t bytes, pb::Category category, StreamId stream);
  void Reduce(int unit);
  void CastGradient(Reduction& r);
  BufferId ReduceScatterTensors(Reduction& r);
  void CopyInto(Reduction& r, BufferId copy, DType to, int64_t elems);
  void Divide(const Reduction& r, double divisor);
  void ReduceScatter(Reduction& r);
  void AllReduce(const Reduction& r);
  void InOriginalDType(Reduction& r, BufferId result);
  void Finalize(Reduction& r);
  void ReduceWhole(Reduction& r, const Tensor& gradient);
  void SetGradient(int unit, BufferId buffer);
  void ToHost(const Reduction& r);
  void FreeOffloaded();
  void NoteUse(BufferId buffer, StreamId stream);

  Eager& eager_;
  PlanBuilder& builder_;
  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  const std::vector<UnitLayout> layouts_;
  const Sharding sharding_;
  const pb::Strategy strategy_;
  const pb::Fsdp1Options options_;
  double divide_before_ = 1;
  double divide_after_ = 1;
  std::vector<Tensor> parameters_;
  std::vector<UnitState> states_;
  std::vector<int> leaf_units_;  // leaf -> unit
  BackwardRules backward_;
  bool initialized_ = false;
  bool first_iteration_ = true;          // the order of forwards is being recorded
  std::vector<int> pre_forward_order_;   // units, by first use
  std::vector<int> post_forward_order_;  // units, in this iteration
  std::deque<Free> frees_;               // that no gather has waited for
  // The last on their streams that compute has not waited for.
  OpId gather_op_ = kNoOp;
  OpId copy_op_ = kNoOp;
  std::vector<Gradient> gradients_;
  bool stale_ = false;  // gradients of the step before are there
};

}  // namespace foreshard
