#include "planner/lower/optimizer.h"

namespace foreshard {
namespace {

// AdamW's defaults in PyTorch but for the learning rate, which never changes memory or time.
constexpr double kLearningRate = 1e-3;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEps = 1e-8;
constexpr double kWeightDecay = 0.01;

class OptimizerLowering {
 public:
  OptimizerLowering(DType original, const ModelGraph& graph, const Fsdp2& fsdp, StreamId compute,
                    int ranks, PlanBuilder& builder)
      : original_(original),
        graph_(graph),
        fsdp_(fsdp),
        compute_(compute),
        ranks_(ranks),
        builder_(builder) {
    std::vector<const ShardedParameter*> by_index(graph.parameters.size(), nullptr);
    for (const UnitLayout& unit : fsdp.layouts()) {
      for (const ShardedParameter& p : unit.parameters) by_index[p.parameter] = &p;
    }
    for (const ShardedParameter* p : by_index) {
      if (!p->frozen) trainable_.push_back(p);
    }
  }

  // Per parameter a step count and two moments, as the first step() creates them.
  void Init(pb::OptimizerKind kind) {
    builder_.BeginSegment("optimizer_init");
    for (const ShardedParameter* p : trainable_) {
      builder_.SetUnit(builder_.plan().parameters(p->parameter).unit());
      state_.push_back(builder_.Allocate(SizeOf(DType::kFp32), pb::OPTIMIZER_STATE, compute_));
      for (int moment = 0; moment < 2; ++moment) {
        state_.push_back(LocalBuffer(*p, pb::OPTIMIZER_STATE));
      }
    }
    builder_.SetUnit(-1);
    builder_.Issue(compute_, {}, state_).mutable_optimizer_init()->set_kind(kind);
  }

  void Step(pb::OptimizerKind kind, pb::OptimizerImpl impl) {
    std::vector<BufferId> in;
    std::vector<BufferId> out;
    for (const Fsdp2::Gradient& g : fsdp_.gradients()) in.push_back(g.buffer);
    int64_t elems = 0;
    for (const ShardedParameter* p : trainable_) {
      out.push_back(p->shard);
      elems += p->local_numel;
    }
    out.insert(out.end(), state_.begin(), state_.end());
    // The multi-tensor implementation holds the square roots of all second moments at once.
    std::vector<BufferId> roots;
    if (impl == pb::FOREACH) {
      for (const ShardedParameter* p : trainable_) roots.push_back(LocalBuffer(*p, pb::TEMP));
    }
    pb::OptimizerStep& step = *builder_.Issue(compute_, in, out).mutable_optimizer_step();
    step.set_kind(kind);
    step.set_impl(impl);
    step.set_learning_rate(kLearningRate);
    step.set_beta1(kBeta1);
    step.set_beta2(kBeta2);
    step.set_eps(kEps);
    step.set_weight_decay(kWeightDecay);
    step.set_elems(elems);
    for (BufferId b : roots) builder_.Free(b);
  }

  void ZeroGrad() {
    builder_.SetPhase(pb::ZERO_GRAD);
    builder_.Issue(kHost, {}, {}).mutable_zero_grad();
    for (const Fsdp2::Gradient& g : fsdp_.gradients()) builder_.Free(g.buffer);
  }

 private:
  // A tensor of the parameter's real local elements; ranks that hold fewer rows are listed.
  BufferId LocalBuffer(const ShardedParameter& p, pb::Category category) {
    const Dims& shape = graph_.parameters[p.parameter].shape;
    const BufferId id = builder_.Allocate(p.local_numel * SizeOf(original_), category, compute_);
    for (int rank = 1; rank < ranks_; ++rank) {
      const int64_t numel = LocalNumel(shape, ranks_, rank);
      if (numel == p.local_numel) continue;
      pb::RankBytes& fewer = *builder_.buffer(id).add_fewer();
      fewer.set_rank(rank);
      fewer.set_bytes(numel * SizeOf(original_));
    }
    return id;
  }

  const DType original_;
  const ModelGraph& graph_;
  const Fsdp2& fsdp_;
  const StreamId compute_;
  const int ranks_;
  PlanBuilder& builder_;
  std::vector<const ShardedParameter*> trainable_;  // named_parameters order
  std::vector<BufferId> state_;
};

}  // namespace

void AddOptimizer(pb::OptimizerKind kind, pb::OptimizerImpl impl, DType original,
                  const ModelGraph& graph, const Fsdp2& fsdp, StreamId compute, int ranks,
                  PlanBuilder& builder) {
  OptimizerLowering lowering(original, graph, fsdp, compute, ranks, builder);
  builder.SetPhase(pb::OPTIMIZER);
  builder.SetUnit(-1);
  if (kind != pb::OPTIMIZER_NONE) lowering.Init(kind);
  builder.BeginSegment("optimizer");
  builder.SetUnit(-1);
  if (kind != pb::OPTIMIZER_NONE) lowering.Step(kind, impl);
  lowering.ZeroGrad();
}

}  // namespace foreshard
