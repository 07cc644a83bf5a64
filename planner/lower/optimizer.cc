#include "planner/lower/optimizer.h"

namespace foreshard {
namespace {

// AdamW's defaults in PyTorch, which nobody can choose yet.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEps = 1e-8;

class OptimizerLowering {
 public:
  OptimizerLowering(const OptimizerChoice& choice, DType original, const ModelGraph& graph,
                    const Fsdp2& fsdp, StreamId compute, int ranks, PlanBuilder& builder)
      : choice_(choice),
        original_(original),
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

  // What the first step() creates: AdamW per parameter a step count and two moments, SGD a momentum
  // buffer, if it has momentum.
  void Init() {
    const bool adamw = choice_.kind == pb::ADAMW;
    if (!adamw && choice_.momentum == 0) return;
    builder_.BeginSegment("optimizer_init");
    for (const ShardedParameter* p : trainable_) {
      builder_.SetUnit(builder_.plan().parameters(p->parameter).unit());
      if (adamw) {
        state_.push_back(builder_.Allocate(SizeOf(DType::kFp32), pb::OPTIMIZER_STATE, compute_));
      }
      for (int moment = 0; moment < (adamw ? 2 : 1); ++moment) {
        state_.push_back(LocalBuffer(*p, pb::OPTIMIZER_STATE));
      }
    }
    builder_.SetUnit(-1);
    builder_.Issue(compute_, {}, state_).mutable_optimizer_init()->set_kind(choice_.kind);
  }

  void Step() {
    std::vector<BufferId> in;
    std::vector<BufferId> out;
    for (const Fsdp2::Gradient& g : fsdp_.gradients()) in.push_back(g.buffer);
    int64_t elems = 0;
    for (const ShardedParameter* p : trainable_) {
      out.push_back(p->shard);
      elems += p->local_numel;
    }
    out.insert(out.end(), state_.begin(), state_.end());
    // The multi-tensor implementation of AdamW holds the square roots of all second moments at
    // once, that of SGD all decayed gradients.
    const bool lists = choice_.kind == pb::ADAMW || choice_.weight_decay != 0;
    std::vector<BufferId> list;
    if (choice_.impl == pb::FOREACH && lists) {
      for (const ShardedParameter* p : trainable_) list.push_back(LocalBuffer(*p, pb::TEMP));
    }
    FillStep(elems, *builder_.Issue(compute_, in, out).mutable_optimizer_step());
    for (BufferId b : list) builder_.Free(b);
  }

  void ZeroGrad() {
    builder_.SetPhase(pb::ZERO_GRAD);
    builder_.Issue(kHost, {}, {}).mutable_zero_grad();
    for (const Fsdp2::Gradient& g : fsdp_.gradients()) builder_.Free(g.buffer);
  }

 private:
  void FillStep(int64_t elems, pb::OptimizerStep& step) const {
    step.set_kind(choice_.kind);
    step.set_impl(choice_.impl);
    step.set_learning_rate(choice_.learning_rate);
    step.set_weight_decay(choice_.weight_decay);
    step.set_momentum(choice_.momentum);
    step.set_elems(elems);
    if (choice_.kind != pb::ADAMW) return;
    step.set_beta1(kBeta1);
    step.set_beta2(kBeta2);
    step.set_eps(kEps);
  }

  // A tensor of the parameter's real local elements; ranks that hold fewer rows are listed.
  BufferId LocalBuffer(const ShardedParameter& p, pb::Category category) {
    const Dims& shape = graph_.parameters[p.parameter].shape;
    const BufferId id = builder_.Allocate(p.local_numel * SizeOf(original_), category, compute_);
    for (int rank = 1; rank < builder_.plan().mesh().world_size(); ++rank) {
      const int64_t numel = LocalNumel(shape, p.shard_dim, ranks_, rank % ranks_);
      if (numel == p.local_numel) continue;
      pb::RankBytes& fewer = *builder_.buffer(id).add_fewer();
      fewer.set_rank(rank);
      fewer.set_bytes(numel * SizeOf(original_));
    }
    return id;
  }

  const OptimizerChoice choice_;
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

void AddOptimizer(const OptimizerChoice& choice, DType original, const ModelGraph& graph,
                  const Fsdp2& fsdp, StreamId compute, int ranks, PlanBuilder& builder) {
  OptimizerLowering lowering(choice, original, graph, fsdp, compute, ranks, builder);
  builder.SetPhase(pb::OPTIMIZER);
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE) lowering.Init();
  builder.BeginSegment("optimizer");
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE) lowering.Step();
  lowering.ZeroGrad();
}

}  // namespace foreshard
