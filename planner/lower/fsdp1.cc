#include "planner/lower/fsdp1.h"

#include <fmt/format.h>

#include <utility>

#include "planner/eager/ops.h"
#include "planner/lower/shard_ops.h"
#include "proto/strategy.h"

namespace foreshard {
namespace {

bool IsFloat(DType t) { return t == DType::kFp32 || t == DType::kBf16 || t == DType::kFp16; }

}  // namespace

Fsdp1::Fsdp1(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
             std::vector<UnitLayout> layouts, const Sharding& sharding, pb::Strategy strategy,
             const pb::Fsdp1Options& options)
    : eager_(eager),
      builder_(eager.builder()),
      graph_(graph),
      units_(units),
      layouts_(std::move(layouts)),
      sharding_(sharding),
      strategy_(strategy),
      options_(options),
      parameters_(graph.parameters.size()),
      states_(units.size()) {
  const double ranks = sharding.ranks * sharding.replicas;
  divide_before_ = DivisorBeforeSum(ranks);
  divide_after_ = ranks / divide_before_;
  for (size_t u = 0; u < units.size(); ++u) {
    if (!layouts_[u].flat) continue;
    const FlatLayout& flat = *layouts_[u].flat;
    states_[u].flat = eager.External(flat.shard, sharding.compute, {flat.numel});
  }
}

bool Fsdp1::FreesAfterForward(int unit) const {
  return ReshardsAfterForward(strategy_) && !units_[unit].is_root;
}

bool Fsdp1::FreesInBackward() const {
  return IsSharded() && (backward_.reduces || ReshardsAfterForward(strategy_));
}

void Fsdp1::BeginMicroBatch(const BackwardRules& rules) {
  backward_ = rules;
  leaf_units_.clear();
  for (UnitState& s : states_) s.last_leaf = kNone;
  gather_op_ = copy_op_ = kNoOp;
}

// What the host has not waited for counts from now.
std::string Fsdp1::State() const {
  std::string state = fmt::format("{}{}{}", initialized_ ? "" : "new ", stale_ ? "stale " : "",
                                  options_.forward_prefetch() && first_iteration_ ? "first " : "");
  for (const Free& free : frees_) {
    state += fmt::format("free {} {} ", free.unit, states_[free.unit].records - free.record);
  }
  for (const UnitState& s : states_) {
    state += fmt::format("{}{}{} ", s.is_unsharded ? "whole " : "", s.sharded_gradient,
                         s.gradient ? fmt::format("+{}", eager_.buffer(s.gradient)) : "");
  }
  return state;
}

void Fsdp1::EndStep() {
  for (UnitState& s : states_) s.gradient.reset();
  stale_ = options_.use_orig_params() && !offloads();
  if (stale_) return;
  for (UnitState& s : states_) s.sharded_gradient = -1;
  gradients_.clear();
}

// ---- forward

// _lazy_init allocates what a flat parameter will be gathered into, and gives it back at once. In a
// step that begins with no_sync it is that which does so, before the forward.
void Fsdp1::InitializeLazily() {
  if (initialized_) return;
  initialized_ = true;
  if (offloads()) AllocateHostGradients();
  if (!backward_.reduces) return;
  const StreamId stream = sharding_.streams.compute;
  const auto transient = [&](int64_t elems, DType dtype, pb::Category category) {
    const BufferId b = builder_.Allocate(elems * SizeOf(dtype), category, stream);
    builder_.Issue(kHost, {}, {}).mutable_release();
    builder_.Free(b);
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    const int64_t shard = layouts_[u].padded_numel;
    if (!layouts_[u].flat) continue;
    builder_.SetUnit(static_cast<int>(u));
    if (IsMixed()) transient(shard, sharding_.compute, pb::CAST);
    if (!IsSharded()) continue;
    transient(shard * sharding_.ranks, sharding_.compute, pb::UNSHARDED_PARAM);
    if (IsMixed()) transient(shard * sharding_.ranks, sharding_.original, pb::UNSHARDED_PARAM);
  }
}

// Where gradients are copied to in every step.
void Fsdp1::AllocateHostGradients() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!layouts_[u].flat || layouts_[u].flat->frozen) continue;
    builder_.SetUnit(static_cast<int>(u));
    const int64_t bytes = layouts_[u].padded_numel * SizeOf(sharding_.original);
    states_[u].host_gradient = builder_.Allocate(bytes, pb::SHARDED_GRAD, sharding_.streams.host);
    builder_.buffer(states_[u].host_gradient).set_host(true);
  }
  builder_.SetUnit(-1);
  builder_.Issue(kHost, {}, {}).mutable_release();
}

void Fsdp1::RootForward(std::span<Tensor*> args) {
  const int module = builder_.module();
  InitializeLazily();
  if (options_.forward_prefetch()) {
    for (UnitState& s : states_) s.awaits_forward = true, s.prefetched = false;
  }
  // Gathers see what the optimizer wrote. Streams on which nothing will run need not wait.
  builder_.SetUnit(-1);
  const auto wait = [&](StreamId stream) {
    builder_.Issue(stream, {}, {}).mutable_stream_wait()->add_on(sharding_.streams.compute);
  };
  if (IsSharded()) wait(sharding_.streams.gather);
  if (IsMixed() || offloads()) wait(sharding_.streams.copy_in);
  DropStaleGradients();
  builder_.SetModule(module);
  for (Tensor* t : args) {
    if (sharding_.casts_root_inputs && IsFloat((*t)->dtype)) {
      *t = ops::Cast(eager_, *t, sharding_.compute);
    }
  }
}

// _reset_flat_param_grad_info_if_needed: zero_grad dropped the views of these.
void Fsdp1::DropStaleGradients() {
  if (!stale_) return;
  stale_ = false;
  builder_.SetUnit(-1);
  builder_.Issue(kHost, {}, {}).mutable_release();
  for (const Gradient& g : gradients_) builder_.Free(g.buffer);
  for (UnitState& s : states_) s.sharded_gradient = -1;
  gradients_.clear();
}

void Fsdp1::BeforeForward(int unit, std::span<Tensor*> args) {
  UnitState& s = states_[unit];
  if (units_[unit].is_root) RootForward(args);
  if (!HasParameters(unit)) return;
  // A forward that runs again within the unit's backward finds the parameters there.
  if (s.training == Training::kPreBackward) return;
  RecordPreForward(unit);
  s.training = Training::kForward;
  if (!s.prefetched) Unshard(unit, pb::AllGather::REASON_FORWARD);
  s.awaits_forward = false;
  WaitForUnshard();
  PrefetchForward(unit);
  RegisterPostBackward(unit, args);
}

// The order of the first iteration is that of all.
void Fsdp1::RecordPreForward(int unit) {
  UnitState& s = states_[unit];
  if (!first_iteration_ || s.pre_forward_place != kNone) return;
  s.pre_forward_place = static_cast<int>(pre_forward_order_.size());
  pre_forward_order_.push_back(unit);
}

// As the library: the place of a unit's first use, except that the unit at place 0 moves.
void Fsdp1::RecordPostForward(int unit) {
  UnitState& s = states_[unit];
  if (s.post_forward_place == kNone || s.post_forward_place == 0) {
    s.post_forward_place = static_cast<int>(post_forward_order_.size());
  }
  post_forward_order_.push_back(unit);
}

// The post-backward belongs to the gradient of a unit's first use, which is complete last. A frozen
// unit has none: it is resharded when gradients have reached all of its inputs.
void Fsdp1::RegisterPostBackward(int unit, std::span<Tensor*> args) {
  UnitState& s = states_[unit];
  if (!eager_.records()) return;
  if (!layouts_[unit].flat->frozen) {
    if (s.hooked_leaf == kNone) s.hooked_leaf = s.last_leaf;
    return;
  }
  if (s.inputs_to_come != kNone) return;
  s.inputs_to_come = 0;
  for (Tensor* t : args) {
    if (!(*t)->requires_grad) continue;
    ++s.inputs_to_come;
    eager_.HookGradient(*t, static_cast<int>(units_.size()) + unit);
  }
}

void Fsdp1::AfterForward(int unit, std::span<Tensor* const> results) {
  UnitState& s = states_[unit];
  if (HasParameters(unit)) {
    if (s.training == Training::kPreBackward) return;
    RecordPostForward(unit);
    Reshard(unit, FreesAfterForward(unit));
  }
  if (eager_.records()) {
    s.awaits_backward = false;
    s.ran_pre_backward = false;
    for (Tensor* t : results) {
      if (!(*t)->requires_grad) continue;
      eager_.HookGradient(*t, unit);
      s.awaits_backward = true;
    }
  }
  s.training = Training::kIdle;
}

// ---- backward

void Fsdp1::BeforeNode(int hook) {
  const int units = static_cast<int>(units_.size());
  if (hook < units) {
    PreBackward(hook);
  } else if (--states_[hook - units].inputs_to_come == 0) {
    ReshardOnly(hook - units);
  }
  builder_.SetUnit(-1);
}

void Fsdp1::PreBackward(int unit) {
  UnitState& s = states_[unit];
  if (!HasParameters(unit) || s.ran_pre_backward) return;
  s.training = Training::kPreBackward;
  if (s.awaits_backward) {
    if (!s.prefetched) Unshard(unit, pb::AllGather::REASON_BACKWARD);
    WaitForUnshard();
  }
  s.awaits_backward = false;  // a prefetch that comes too late gathers nothing
  PrefetchBackward(unit);
  s.ran_pre_backward = true;
}

void Fsdp1::ReshardOnly(int unit) {
  states_[unit].training = Training::kPostBackward;
  PostBackwardReshard(unit);
}

void Fsdp1::PostBackwardReshard(int unit) {
  Reshard(unit, FreesInBackward());
  PrefetchBackward(unit);
}

void Fsdp1::PostBackward(int unit) {
  states_[unit].training = Training::kPostBackward;
  PostBackwardReshard(unit);
  if (backward_.reduces) Reduce(unit);
}

void Fsdp1::PrefetchForward(int unit) {
  if (!options_.forward_prefetch() || states_[unit].training != Training::kForward) return;
  const auto next = static_cast<size_t>(states_[unit].pre_forward_place) + 1;
  if (next >= pre_forward_order_.size()) return;
  const int target = pre_forward_order_[next];
  if (!states_[target].awaits_forward || states_[target].prefetched) return;
  Prefetch(target, Training::kForward, pb::AllGather::PREFETCH_FORWARD_IMPLICIT);
}

void Fsdp1::PrefetchBackward(int unit) {
  const UnitState& s = states_[unit];
  const auto when = options_.backward_prefetch();
  const bool before =
      when == pb::Fsdp1Options::BACKWARD_PRE && s.training == Training::kPreBackward;
  const bool after =
      when == pb::Fsdp1Options::BACKWARD_POST && s.training == Training::kPostBackward;
  if ((!before && !after) || s.post_forward_place <= 0) return;
  const int target = post_forward_order_[s.post_forward_place - 1];
  if (!states_[target].awaits_backward || states_[target].prefetched) return;
  Prefetch(target, Training::kPreBackward, pb::AllGather::PREFETCH_BACKWARD_IMPLICIT);
}

void Fsdp1::Prefetch(int unit, Training training, pb::AllGather::Reason reason) {
  UnitState& s = states_[unit];
  const Training before = std::exchange(s.training, training);
  Unshard(unit, reason);
  s.training = before;
  s.prefetched = true;
}

// _post_backward_final_callback
void Fsdp1::AtEnd() {
  if (backward_.reduces) FinishReductions();
  first_iteration_ = false;
  post_forward_order_.clear();
  for (size_t u = 0; u < units_.size(); ++u) {
    const int unit = static_cast<int>(u);
    UnitState& s = states_[u];
    if (!HasParameters(unit)) continue;
    if (!s.uses_shard) Reshard(unit, FreesInBackward());
    s.hooked_leaf = s.inputs_to_come = s.post_forward_place = kNone;
    s.ran_pre_backward = s.awaits_backward = s.prefetched = false;
    s.training = Training::kIdle;
  }
  builder_.SetUnit(-1);
}

// What follows on the compute stream finds all gradients there.
void Fsdp1::FinishReductions() {
  const Streams& streams = sharding_.streams;
  builder_.SetUnit(-1);
  pb::Op& op = builder_.Issue(streams.compute, {}, {});
  op.mutable_stream_wait()->add_on(streams.reduce);
  if (IsHybrid(strategy_)) op.mutable_stream_wait()->add_on(streams.all_reduce);
  if (offloads()) FreeOffloaded();
}

}  // namespace foreshard
