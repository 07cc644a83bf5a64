// FSDP2's rules: what happens before and after the forward and the backward of a unit, and at the
// end of the backward. The walk over the model (lower/step.h) calls these; autograd calls back
// through GradientHooks. Sources and the order of events: docs/fsdp2.md.
#pragma once

#include <vector>

#include "planner/eager/eager.h"
#include "planner/lower/behaviour.h"
#include "planner/lower/layout.h"

namespace foreshard {

struct Streams {
  StreamId compute, copy_in, gather, reduce;
};

// What the rules need to know of the choices.
struct Sharding {
  Behaviour behaviour;
  Streams streams;
  int ranks = 1;  // in the shard group
  int group = 0;
  DType original, compute, reduce;
};

class Fsdp2 : public GradientHooks {
 public:
  Fsdp2(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
        std::vector<UnitLayout> layouts, const Sharding& sharding);

  // The unsharded parameter, for kernels to read.
  const Tensor& parameter(int index) const { return parameters_[index]; }
  // Sharded gradients that the backward left, per parameter index; consumed by the optimizer.
  struct Gradient {
    int unit;
    BufferId buffer;
  };
  const std::vector<Gradient>& gradients() const { return gradients_; }
  const std::vector<UnitLayout>& layouts() const { return layouts_; }

  // ---- forward
  void BeginForward();
  // `args` may be replaced by values that call back when backward reaches them.
  void BeforeForward(int unit, std::span<Tensor*> args);
  void AfterForward(int unit, std::span<Tensor* const> results);

  // ---- autograd
  void BeforeNode(int unit) override;  // a gradient has reached the unit's output
  void AtPoint(int unit) override;     // ... and its inputs
  void ParameterGradient(int parameter, Tensor gradient, bool summed) override;
  void AtEnd() override;

 private:
  struct UnitState {
    std::vector<BufferId> unsharded;  // one per parameter; empty when sharded
    bool pending = false;             // a gather was asked for and not copied out yet
    BufferId gathered = -1;           // its output, which a group of one rank does without
    OpId gather_op = kNoOp;
    std::vector<Tensor> gradients;  // per layout position
    bool reshards_after_forward = true;
    bool in_backward = false;         // its pre-backward has run
    bool reduced = false;             // its post-backward has run
    std::vector<int> forward_visits;  // positions in forward_order_
  };
  bool IsUnsharded(const UnitState& s) const { return !s.unsharded.empty(); }
  // One rank has all there is: it copies where others gather and reduce.
  bool IsAlone() const { return sharding_.ranks == 1; }

  void Gather(int unit, pb::AllGather::Reason reason);
  BufferId Cast(std::span<const BufferId> shards, int64_t elems, StreamId stream);
  BufferId NewUnsharded(int unit, const ShardedParameter& p);
  void CopyOut(int unit, bool in_forward);
  void CopyLocally(int unit);
  void Reshard(int unit);
  void DropHeldGather();
  void PrefetchBefore(int unit);
  void PostBackward(int unit);
  void Reduce(int unit);
  OpId ReduceInto(BufferId output, int64_t elems);
  void Finalize(int unit, BufferId output, int64_t elems);
  void RecycleReduceInput();

  Eager& eager_;
  PlanBuilder& builder_;
  const std::vector<Unit>& units_;
  const std::vector<UnitLayout> layouts_;
  const Sharding sharding_;
  std::vector<Tensor> parameters_;
  std::vector<std::pair<int, int>> place_;  // parameter -> unit, layout position
  std::vector<UnitState> states_;
  std::vector<int> forward_order_;  // units in the order their forwards ended

  // The last gather output that was copied out in forward, freed at the next copy-out.
  BufferId held_gather_ = -1;
  OpId held_copy_out_ = kNoOp;
  // The reduce-scatter input that is kept until the next reduction, one at most.
  BufferId reduce_input_ = -1;
  OpId reduce_op_ = kNoOp;
  std::vector<Gradient> gradients_;
};

}  // namespace foreshard
