#include "planner/lower/fsdp2.h"

#include "planner/lower/shard_ops.h"

namespace foreshard {

Fsdp2::Fsdp2(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
             std::vector<UnitRules> rules, std::vector<UnitLayout> layouts,
             const Sharding& sharding)
    : eager_(eager),
      builder_(eager.builder()),
      units_(units),
      rules_(std::move(rules)),
      layouts_(std::move(layouts)),
      sharding_(sharding),
      factors_(ChooseFactors()),
      parameters_(graph.parameters.size()),
      place_(graph.parameters.size()),
      states_(units.size()) {
  for (size_t u = 0; u < units.size(); ++u) {
    const auto& parameters = layouts_[u].parameters;
    states_[u].gradients.resize(parameters.size());
    states_[u].accumulated.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ShardedParameter& p = parameters[i];
      place_[p.parameter] = {static_cast<int>(u), static_cast<int>(i)};
      Tensor t = eager.External(-1, sharding.compute, graph.parameters[p.parameter].shape);
      if (!p.frozen) eager.MakeLeaf(t, p.parameter);
      parameters_[p.parameter] = std::move(t);
    }
  }
}

// ---- forward

// The outermost unit that runs makes the gathers see what the optimizer wrote.
void Fsdp2::RootForward(int unit) {
  if (forward_root_ != kNone) return;
  forward_root_ = unit;
  if (IsAlone()) return;  // nothing will run on the streams that would wait
  builder_.SetUnit(-1);
  for (StreamId stream : {sharding_.streams.copy_in, sharding_.streams.gather}) {
    pb::Op& op = builder_.Issue(stream, {}, {});
    op.mutable_stream_wait()->add_on(sharding_.streams.compute);
  }
}

void Fsdp2::BeforeForward(int unit, std::span<Tensor*> args) {
  UnitState& s = states_[unit];
  // A forward that runs again within the unit's backward finds the parameters there.
  if (s.training == Training::kPreBackward) {
    const bool missing = HasParameters(unit) && !s.is_unsharded;
    if (!missing || !sharding_.behaviour.unshards_in_recompute) return;
    Unshard(unit, pb::AllGather::REASON_BACKWARD);
    return WaitForUnshard(unit);
  }
  s.training = Training::kForward;
  RootForward(unit);
  if (HasParameters(unit)) PreForward(unit, args);
  Prefetch(rules_[unit].forward_prefetch, pb::AllGather::PREFETCH_FORWARD_EXPLICIT);
}

void Fsdp2::PreForward(int unit, std::span<Tensor*> args) {
  states_[unit].group_training = Training::kForward;
  Unshard(unit, pb::AllGather::REASON_FORWARD);
  WaitForUnshard(unit);
  eager_.MarkPoint(args, unit);
}

void Fsdp2::AfterForward(int unit, std::span<Tensor* const> results) {
  UnitState& s = states_[unit];
  if (s.training == Training::kPreBackward) return;
  if (HasParameters(unit)) {
    // A forward that runs again in backward leaves what follows to the backward.
    if (!in_backward_ || sharding_.behaviour.reshards_after_recompute) {
      Reshard(unit);
      s.forward_visits.push_back(static_cast<int>(forward_order_.size()));
      forward_order_.push_back(unit);
    }
    s.group_training = Training::kIdle;
  }
  for (Tensor* t : results) {
    if ((*t)->requires_grad) eager_.HookGradient(*t, unit);
  }
  s.training = Training::kIdle;
  if (forward_root_ != unit) return;
  DropHeldGather();
  forward_root_ = kNone;
}

// ---- backward

void Fsdp2::BeforeNode(int unit) {
  UnitState& s = states_[unit];
  in_backward_ = true;
  s.training = Training::kPreBackward;
  const std::vector<int>& listed = rules_[unit].backward_prefetch;
  if (HasParameters(unit) && s.group_training != Training::kPreBackward) {
    s.group_training = Training::kPreBackward;
    Unshard(unit, pb::AllGather::REASON_BACKWARD);
    WaitForUnshard(unit);
    if (listed.empty()) PrefetchBefore(unit);
  }
  Prefetch(listed, pb::AllGather::PREFETCH_BACKWARD_EXPLICIT);
}

// Gathers the unit whose forward ended just before this one's.
void Fsdp2::PrefetchBefore(int unit) {
  UnitState& s = states_[unit];
  if (s.forward_visits.empty()) return;
  const int position = s.forward_visits.back() - 1;
  s.forward_visits.pop_back();
  if (position < 0) return;
  const int target[] = {forward_order_[position]};
  Prefetch({target, target + 1}, pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
}

void Fsdp2::Prefetch(const std::vector<int>& units, pb::AllGather::Reason reason) {
  const bool forward = reason == pb::AllGather::PREFETCH_FORWARD_EXPLICIT;
  for (int unit : units) {
    if (!HasParameters(unit)) continue;
    UnitState& s = states_[unit];
    const Training before = s.group_training;
    s.group_training = forward ? Training::kForward : Training::kPreBackward;
    Unshard(unit, reason);
    s.group_training = before;
  }
}

DType Fsdp2::GradientDType(int parameter, DType made, DType parameter_dtype) const {
  if (sharding_.behaviour.casts_leaf_gradients) return parameter_dtype;
  const auto [unit, position] = place_[parameter];
  // What starts to accumulate does so in the dtype of the reduction; all else keeps what autograd
  // has made: it is added to that, or cast as it is collected.
  const bool starts = !backward_.reduces && !states_[unit].gradients[position];
  const bool wider = SizeOf(sharding_.reduce) > SizeOf(sharding_.compute);
  return starts && wider ? sharding_.reduce : made;
}

void Fsdp2::ParameterGradient(int parameter, Tensor gradient, bool summed) {
  const auto [unit, position] = place_[parameter];
  Tensor& sum = states_[unit].gradients[position];
  if (sum) {  // of earlier micro-batches
    eager_.Launch("add_", {&sum, &gradient}, {&sum});
    return;
  }
  CountAsGradient(builder_, eager_.buffer(gradient), unit, summed);
  sum = std::move(gradient);
}

void Fsdp2::AtPoint(int unit) { PostBackward(unit); }

// Units that no gradient reached at their inputs are reduced now, in named_modules order; then
// compute waits for the reductions.
void Fsdp2::AtEnd() {
  forward_root_ = kNone;
  for (size_t u = 0; u < units_.size(); ++u) {
    const int unit = static_cast<int>(u);
    UnitState& s = states_[u];
    const bool late = sharding_.behaviour.ends_with_unsharded_units
                          ? s.is_unsharded || !rules_[u].gathers_in_backward
                          : s.group_training != Training::kPostBackward;
    if (late && HasParameters(unit)) PostBackward(unit);
    s.training = s.group_training = Training::kIdle;
    if (backward_.is_last && !sharding_.behaviour.waits_once_at_end) FinishUnit(unit);
  }
  in_backward_ = false;
  accumulates_ = true;
  if (backward_.is_last) {
    FinishBackward();
  } else if (sharding_.behaviour.waits_once_at_end) {
    DropHeldGather();
  }
}

// Compute has waited for the unit's reduction. A gather that nobody waited for is dropped.
void Fsdp2::FinishUnit(int unit) {
  UnitState& s = states_[unit];
  s.reduced_on = kHost;
  if (s.all_reduced >= 0) {
    builder_.SetUnit(unit);
    pb::Op& op = builder_.Issue(sharding_.streams.compute, {}, {});
    op.mutable_stream_wait()->add_on(sharding_.streams.all_reduce);
    builder_.Free(s.all_reduced);
    s.all_reduced = -1;
  }
  if (s.pending) {
    builder_.SetUnit(unit);
    if (!IsAlone()) {
      if (s.gather_segment == builder_.plan().segments_size()) {
        builder_.WaitBeforeNext(sharding_.streams.compute, s.gather_op);
      }
      pb::Op& op = builder_.Issue(sharding_.streams.compute, {}, {});
      op.mutable_stream_wait()->add_on(sharding_.streams.gather);
      builder_.Free(s.gathered);
      if (sharding_.offloads) {
        // Nothing in the library keeps the host from updating a shard that is still on its way into
        // a gather that nobody waited for; it has been on its way for long.
        const OpId gathered = builder_.last_op();
        pb::Op& wait = builder_.Issue(kHost, {}, {});
        wait.mutable_release();
        wait.add_host_waits(gathered);
      }
    }
    s.pending = false;
    s.gathered = -1;
  }
  s.forward_visits.clear();
}

void Fsdp2::FinishBackward() {
  builder_.SetUnit(-1);
  pb::Op& op = builder_.Issue(sharding_.streams.compute, {}, {});
  op.mutable_stream_wait()->add_on(sharding_.streams.reduce);
  if (sharding_.replicas > 1) op.mutable_stream_wait()->add_on(sharding_.streams.all_reduce);
  for (size_t u = 0; u < units_.size(); ++u) FinishUnit(static_cast<int>(u));
  if (to_host_op_ != kNoOp) {  // the optimizer is the host's
    builder_.SetUnit(-1);
    pb::Op& wait = builder_.Issue(kHost, {}, {});
    wait.mutable_release();
    wait.add_host_waits(to_host_op_);
    to_host_op_ = kNoOp;
  }
  DropHeldGather();
  forward_order_.clear();
  DropReduceInputs();
}

}  // namespace foreshard
