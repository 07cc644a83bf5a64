#include "planner/lower/optimizer.h"

#include <algorithm>
#include <functional>

#include "proto/oplib/optimizer_state.h"

namespace foreshard {
namespace {

// AdamW's defaults in PyTorch, which nobody can choose yet.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEps = 1e-8;

bool IsAdam(const OptimizerChoice& choice) { return choice.kind != pb::SGD; }

class OptimizerLowering {
 public:
  OptimizerLowering(const OptimizerChoice& choice, const UpdatePlace& place,
                    const ShardingRules& rules, PlanBuilder& builder)
      : choice_(choice),
        place_(place),
        rules_(rules),
        builder_(builder),
        tensors_(OptimizerTensors(builder.plan(), rules.layouts())) {}

  // What the first step() creates: AdamW per parameter a step count and two moments, SGD a momentum
  // buffer, if it has momentum.
  void Init() {
    const int moments = oplib::MomentCount(choice_.kind, choice_.momentum);
    if (moments == 0) return;
    builder_.BeginSegment("optimizer_init");
    for (const OptimizerTensor& t : tensors_) {
      builder_.SetUnit(t.unit);
      if (IsAdam(choice_)) state_.push_back(StepCount(t));
      for (int moment = 0; moment < moments; ++moment) {
        state_.push_back(PerRank(pb::OPTIMIZER_STATE, [&](int rank) {
          return oplib::MomentBytes(choice_.kind, t.NumelOn(rank), SizeOf(choice_.state));
        }));
      }
    }
    builder_.SetUnit(-1);
    pb::OptimizerInit& init = *builder_.Issue(place_.stream, {}, state_).mutable_optimizer_init();
    init.set_kind(choice_.kind);
    if (choice_.state != place_.original) init.set_dtype(ToProto(choice_.state));
  }

  void Step() {
    std::vector<BufferId> in;
    std::vector<BufferId> out;
    for (const ShardingRules::Gradient& g : rules_.gradients()) in.push_back(g.buffer);
    int64_t elems = 0;
    for (const OptimizerTensor& t : tensors_) {
      if (std::find(out.begin(), out.end(), t.shard) == out.end()) out.push_back(t.shard);
      elems += t.NumelOn(0);
    }
    out.insert(out.end(), state_.begin(), state_.end());
    const std::vector<BufferId> temporaries = Temporaries();
    FillStep(elems, *builder_.Issue(place_.stream, in, out).mutable_optimizer_step());
    for (BufferId b : temporaries) builder_.Free(b);
  }

  void ZeroGrad() {
    const OpId update = builder_.last_op();
    builder_.SetPhase(pb::ZERO_GRAD);
    pb::Op& op = builder_.Issue(kHost, {}, {});
    op.mutable_zero_grad();
    if (place_.on_host && update != kNoOp) op.add_host_waits(update);
    if (!rules_.frees_gradients()) return;
    for (const ShardingRules::Gradient& g : rules_.gradients()) builder_.Free(g.buffer);
  }

 private:
  // What the update holds beside its operands: docs/fsdp2.md. An optimizer that goes from one
  // parameter to the next holds what the worst of them needs.
  std::vector<BufferId> Temporaries() {
    const bool any = IsAdam(choice_) || choice_.weight_decay != 0;
    if (choice_.impl == pb::FUSED || !any) return {};
    if (choice_.impl == pb::LOOP) {
      return {PerRank(pb::TEMP, [&](int rank) { return LoopBytes(rank); })};
    }
    // Square roots of all second moments at once, or all decayed gradients.
    const DType dtype = choice_.kind == pb::ADAMW ? choice_.state : place_.original;
    std::vector<BufferId> list;
    for (const OptimizerTensor& t : tensors_) {
      list.push_back(PerRank(pb::TEMP, [&](int rank) { return t.NumelOn(rank) * SizeOf(dtype); }));
    }
    return list;
  }

  int64_t LoopBytes(int rank) const {
    int64_t most = 0;
    int64_t before = 0;
    for (const OptimizerTensor& t : tensors_) {
      const int64_t numel = t.NumelOn(rank);
      most =
          std::max(most, oplib::LoopTemporaryBytes(choice_.kind, numel, before,
                                                   SizeOf(place_.original), SizeOf(choice_.state)));
      before = numel;
    }
    return most;
  }

  void FillStep(int64_t elems, pb::OptimizerStep& step) const {
    step.set_kind(choice_.kind);
    step.set_impl(choice_.impl);
    if (choice_.state != place_.original) step.set_dtype(ToProto(choice_.state));
    step.set_learning_rate(choice_.learning_rate);
    step.set_weight_decay(choice_.weight_decay);
    step.set_momentum(choice_.momentum);
    step.set_elems(elems);
    if (!IsAdam(choice_)) return;
    step.set_beta1(kBeta1);
    step.set_beta2(kBeta2);
    step.set_eps(kEps);
  }

  // A rank without any part of a flat parameter's tensor does not update it.
  BufferId StepCount(const OptimizerTensor& t) {
    const bool everywhere = !rules_.layouts()[t.unit].flat;
    return PerRank(pb::OPTIMIZER_STATE, [&](int rank) {
      return everywhere || t.NumelOn(rank) > 0 ? SizeOf(DType::kFp32) : 0;
    });
  }

  BufferId Allocate(int64_t bytes, pb::Category category) {
    const BufferId id = builder_.Allocate(bytes, category, place_.stream);
    if (place_.on_host) builder_.buffer(id).set_host(true);
    return id;
  }

  // A buffer whose bytes follow from a rank's part; ranks that hold another number are listed.
  BufferId PerRank(pb::Category category, const std::function<int64_t(int)>& bytes_of) {
    const int64_t most = bytes_of(0);
    const BufferId id = Allocate(most, category);
    for (int rank = 1; rank < builder_.plan().mesh().world_size(); ++rank) {
      const int64_t bytes = bytes_of(rank % place_.ranks);
      if (bytes == most) continue;
      pb::RankBytes& other = *builder_.buffer(id).add_others();
      other.set_rank(rank);
      other.set_bytes(bytes);
    }
    return id;
  }

  const OptimizerChoice choice_;
  const UpdatePlace place_;
  const ShardingRules& rules_;
  PlanBuilder& builder_;
  const std::vector<OptimizerTensor> tensors_;
  std::vector<BufferId> state_;
};

}  // namespace

void AddOptimizer(const OptimizerChoice& choice, const UpdatePlace& place,
                  const ShardingRules& rules, PlanBuilder& builder) {
  OptimizerLowering lowering(choice, place, rules, builder);
  builder.SetPhase(pb::OPTIMIZER);
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE) lowering.Init();
  builder.BeginSegment("optimizer");
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE) lowering.Step();
  lowering.ZeroGrad();
}

}  // namespace foreshard
