// FSDP2's rules: what happens before and after the forward and the backward of a unit, and at the
// end of the backward. The walk over the model (lower/forward.h) calls these; autograd calls back
// through GradientHooks. Sources and the order of events: docs/fsdp2.md.
//
//   fsdp2.cc         hooks: which unit is gathered, resharded and reduced when
//   fsdp2_gather.cc  how a unit's parameters are gathered and given back
//   fsdp2_reduce.cc  how its gradients are collected, reduced and accumulated
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "planner/lower/sharding_rules.h"

namespace foreshard {

class Fsdp2 : public ShardingRules {
 public:
  Fsdp2(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
        std::vector<UnitRules> rules, std::vector<UnitLayout> layouts, const Sharding& sharding);

  const Tensor& parameter(int index) const override { return parameters_[index]; }
  // With offload gradients are of single parameters, on the host.
  const std::vector<Gradient>& gradients() const override { return gradients_; }
  const std::vector<UnitLayout>& layouts() const override { return layouts_; }

  void BeginMicroBatch(const BackwardRules& rules) override { backward_ = rules; }
  std::string State() const override { return accumulates_ ? "later" : "first"; }
  void EndStep() override { accumulates_ = false; }

  void BeforeForward(int unit, std::span<Tensor*> args) override;
  void AfterForward(int unit, std::span<Tensor* const> results) override;

  // ---- autograd
  void BeforeNode(int unit) override;  // a gradient has reached the unit's output
  void AtPoint(int unit) override;     // ... and its inputs
  void ParameterGradient(int parameter, Tensor gradient, bool summed) override;
  DType GradientDType(int parameter, DType made, DType parameter_dtype) const override;
  void AtEnd() override;

 private:
  enum class Training { kIdle, kForward, kPreBackward, kPostBackward };
  struct UnitState {
    std::vector<BufferId> unsharded;  // one per parameter, once the first gather has named them
    bool is_unsharded = false;
    std::vector<BufferId> slices;  // kept after forward, one per parameter
    OpId slice_op = kNoOp;
    bool pending = false;    // a gather was asked for and not copied out yet
    BufferId gathered = -1;  // its output, which a group of one rank does without
    OpId gather_op = kNoOp;
    int gather_segment = 0;
    std::vector<Tensor> gradients;  // autograd's, per layout position
    std::vector<Tensor>
        accumulated;            // of earlier micro-batches, where the library keeps them apart
    BufferId partial = -1;      // reduced, but not yet over the replicas
    BufferId all_reduced = -1;  // held until the end of the backward
    BufferId sharded_gradient = -1;
    std::vector<BufferId> host_gradients;  // instead, per layout position
    StreamId reduced_on = kHost;  // where the end of its last reduction has not been waited for
    Training training = Training::kIdle;        // of the module
    Training group_training = Training::kIdle;  // of its parameters
    std::vector<int> forward_visits;            // positions in forward_order_
  };
  struct ReduceInput {
    BufferId buffer;
    int segment;
    OpId op;  // that reads it
  };

  bool HasParameters(int unit) const { return !layouts_[unit].parameters.empty(); }
  // One rank has all there is: it copies where others gather and reduce.
  bool IsAlone() const {
    return sharding_.ranks == 1 && !sharding_.behaviour.alone_uses_collectives;
  }

  // ---- hooks
  void RootForward(int unit);
  void PreForward(int unit, std::span<Tensor*> args);
  void PrefetchBefore(int unit);
  void Prefetch(const std::vector<int>& units, pb::AllGather::Reason reason);
  void PostBackward(int unit);
  void FinishUnit(int unit);
  void FinishBackward();

  // ---- gather
  void Unshard(int unit, pb::AllGather::Reason reason);
  void WaitForUnshard(int unit);
  std::vector<BufferId> GatherSources(int unit, StreamId stream, std::vector<BufferId>& temporary);
  BufferId Cast(std::span<const BufferId> shards, int64_t elems, DType from, StreamId stream);
  BufferId ToDevice(const ShardedParameter& p, StreamId stream);
  void NameUnsharded(int unit);
  void CopyOut(int unit);
  void AwaitGather(int unit);
  void JoinShards(int unit, std::span<const BufferId> gathered);
  void CopyLocally(int unit);
  void KeepSlices(int unit);
  void FreeUnsharded(int unit);
  void Reshard(int unit);
  void DropHeldGather();

  // ---- reduce
  void Accumulate(int unit);
  void KeepAccumulated(int unit);
  struct Collected;
  Collected Collect(int unit);
  void WaitForReduceInput(const ReduceInput& input);
  void RecycleReduceInputs();
  void DropReduceInputs();
  void Reduce(int unit, Collected collected);
  void AwaitReduction(int unit);
  bool AddOnHost(int unit, int position, BufferId copy);
  void ListShorter(const ShardedParameter& p, BufferId buffer);
  void SplitGradients(int unit, Collected& collected);
  void ReduceInto(BufferId output, int64_t elems);
  void Divide(BufferId buffer, int64_t elems, double divisor, StreamId stream);
  void AddReduced(BufferId to, BufferId from, int64_t elems);
  void AllReduce(BufferId buffer, int64_t elems);
  BufferId InOriginalDType(BufferId output, int64_t elems, pb::Category category, StreamId stream);
  void Finalize(int unit, BufferId output, int64_t elems, StreamId stream);
  void ToHost(int unit, BufferId output, int64_t elems, const std::vector<int>& positions,
              StreamId stream);
  void HoldOrFree(int unit, BufferId output);
  struct Factors {
    double before = 1;
    double after = 1;
    pb::ReduceScatter::Reduction scatter = pb::ReduceScatter::SUM;
    double premultiply = 0;
    pb::ReduceScatter::Reduction over_replicas = pb::ReduceScatter::SUM;
  };
  Factors ChooseFactors() const;

  Eager& eager_;
  PlanBuilder& builder_;
  const std::vector<Unit>& units_;
  const std::vector<UnitRules> rules_;
  const std::vector<UnitLayout> layouts_;
  const Sharding sharding_;
  const Factors factors_;
  std::vector<Tensor> parameters_;
  std::vector<std::pair<int, int>> place_;  // parameter -> unit, layout position
  std::vector<UnitState> states_;
  std::vector<int> forward_order_;  // units in the order their forwards ended
  int forward_root_ = kNone;        // the unit whose forward holds all others
  bool in_backward_ = false;
  BackwardRules backward_;
  bool accumulates_ = false;  // to what earlier micro-batches have left

  // The last gather output that was copied out in forward, freed at the next copy-out.
  BufferId held_gather_ = -1;
  OpId held_copy_out_ = kNoOp;
  std::deque<ReduceInput> reduce_inputs_;  // kept, oldest first
  std::vector<Gradient> gradients_;
  OpId to_host_op_ = kNoOp;  // the last copy that the host has to wait for
};

}  // namespace foreshard
