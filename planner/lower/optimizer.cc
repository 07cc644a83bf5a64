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
                    const ShardingRules& rules, PlanBuilder& builder, std::vector<BufferId>& state)
      : choice_(choice),
        place_(place),
        rules_(rules),
        builder_(builder),
        tensors_(OptimizerTensors(builder.plan(), rules.layouts())),
        state_(state) {
    if (place.partitioned) Divide();
  }

  // What the first step() creates: AdamW per parameter a step count and two moments, SGD a momentum
  // buffer, if it has momentum.
  void Init() {
    const int moments = oplib::MomentCount(choice_.kind, choice_.momentum);
    if (moments == 0) return;
    builder_.BeginSegment("optimizer_init");
    for (size_t i = 0; i < tensors_.size(); ++i) {
      builder_.SetUnit(tensors_[i].unit);
      if (IsAdam(choice_)) {
        state_.push_back(PerRank(pb::OPTIMIZER_STATE, [&](int rank) {
          return HasState(rank, i) ? SizeOf(DType::kFp32) : 0;
        }));
      }
      for (int moment = 0; moment < moments; ++moment) {
        state_.push_back(PerRank(pb::OPTIMIZER_STATE, [&](int rank) {
          return oplib::MomentBytes(choice_.kind, LocalNumelOf(i, rank), SizeOf(choice_.state));
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
    std::vector<bool> listed(builder_.plan().buffers_size(), false);
    for (const OptimizerTensor& t : tensors_) {
      if (!listed[t.shard]) out.push_back(t.shard);
      listed[t.shard] = true;
    }
    out.insert(out.end(), state_.begin(), state_.end());
    const std::vector<BufferId> temporaries = Temporaries();
    pb::Op& op = builder_.Issue(place_.stream, in, out);
    AddOffsets(rules_, op);
    FillStep(*op.mutable_optimizer_step());
    for (BufferId b : temporaries) builder_.Free(b);
    if (place_.partitioned) Broadcast();
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
    for (size_t i = 0; i < tensors_.size(); ++i) {
      list.push_back(
          PerRank(pb::TEMP, [&](int rank) { return LocalNumelOf(i, rank) * SizeOf(dtype); }));
    }
    return list;
  }

  int64_t LoopBytes(int rank) const {
    int64_t most = 0;
    int64_t before = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!Updates(rank, i)) continue;
      const int64_t numel = LocalNumelOf(i, rank);
      most =
          std::max(most, oplib::LoopTemporaryBytes(choice_.kind, numel, before,
                                                   SizeOf(place_.original), SizeOf(choice_.state)));
      before = numel;
    }
    return most;
  }

  // Elements that a rank updates; where ranks differ by design, the one with most.
  int64_t UpdatedElems() const {
    std::vector<int64_t> elems(place_.partitioned ? ranks() : 1, 0);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      elems[place_.partitioned ? partition_.owners[i] : 0] += tensors_[i].NumelOn(0);
    }
    return std::ranges::max(elems);
  }

  void FillStep(pb::OptimizerStep& step) const {
    step.set_kind(choice_.kind);
    step.set_impl(choice_.impl);
    if (choice_.state != place_.original) step.set_dtype(ToProto(choice_.state));
    step.set_learning_rate(choice_.learning_rate);
    step.set_weight_decay(choice_.weight_decay);
    step.set_momentum(choice_.momentum);
    step.set_elems(UpdatedElems());
    for (const int owner : partition_.owners) step.add_owners(owner);
    if (!IsAdam(choice_)) return;
    step.set_beta1(kBeta1);
    step.set_beta2(kBeta2);
    step.set_eps(kEps);
  }

  int ranks() const { return builder_.plan().mesh().world_size(); }

  bool Updates(int rank, size_t i) const {
    return !place_.partitioned || partition_.owners[i] == rank;
  }

  int64_t LocalNumelOf(size_t i, int rank) const {
    return Updates(rank, i) ? tensors_[i].NumelOn(rank % place_.ranks) : 0;
  }

  // Of a flat parameter's tensors a rank updates those that it has any part of.
  bool HasState(int rank, size_t i) const {
    const bool flat = rules_.layouts()[tensors_[i].unit].flat.has_value();
    return flat ? LocalNumelOf(i, rank) > 0 : Updates(rank, i);
  }

  void Divide() {
    std::vector<int64_t> sizes;
    for (const OptimizerTensor& t : tensors_) sizes.push_back(t.NumelOn(0));
    partition_ = PartitionBySize(sizes, ranks());
  }

  // What each rank has updated becomes everybody's.
  void Broadcast() {
    builder_.WaitBeforeNext(place_.broadcast, builder_.last_op());
    for (const int i : partition_.order) {
      const OptimizerTensor& t = tensors_[i];
      builder_.SetUnit(t.unit);
      pb::Broadcast& op =
          *builder_.Issue(place_.broadcast, {t.shard}, {t.shard}).mutable_broadcast();
      op.set_group(place_.replicate_group);
      op.set_root(partition_.owners[i]);
      op.set_elems(t.NumelOn(0));
      op.set_dtype(ToProto(place_.original));
    }
    builder_.SetUnit(-1);
    pb::Op& wait = builder_.Issue(place_.stream, {}, {});
    wait.mutable_stream_wait()->add_on(place_.broadcast);
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
      const int64_t bytes = bytes_of(rank);
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
  Partition partition_;
  std::vector<BufferId>& state_;
};

}  // namespace

void AddOffsets(const ShardingRules& rules, pb::Op& op) {
  const std::vector<ShardingRules::Gradient>& gradients = rules.gradients();
  if (std::ranges::all_of(gradients, [](const auto& g) { return g.offset == 0; })) return;
  for (const ShardingRules::Gradient& g : gradients) op.add_in_offsets(g.offset);
  while (op.in_offsets_size() < op.in_size()) op.add_in_offsets(0);
}

void AddOptimizer(const OptimizerChoice& choice, const UpdatePlace& place,
                  const ShardingRules& rules, PlanBuilder& builder, std::vector<BufferId>& state) {
  OptimizerLowering lowering(choice, place, rules, builder, state);
  builder.SetPhase(pb::OPTIMIZER);
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE && state.empty()) lowering.Init();
  builder.BeginSegment("optimizer");
  builder.SetUnit(-1);
  if (choice.kind != pb::OPTIMIZER_NONE) lowering.Step();
  lowering.ZeroGrad();
}

}  // namespace foreshard
