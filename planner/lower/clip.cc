#include "planner/lower/clip.h"

#include "planner/lower/shard_ops.h"

namespace foreshard {
namespace {

// Vectors of the norms of all gradients that there are at once after the all-reduce: what it has
// sent a copy of and received, the tensor that wraps this for autograd, and the roots. Of flat
// parameters, whose norm is one number: what becomes of it until it is the factor.
constexpr int kVectorsAfterAllReduce = 3;

class ClipLowering {
 public:
  ClipLowering(const ClipChoice& choice, const UpdatePlace& place, const ShardingRules& rules,
               PlanBuilder& builder)
      : choice_(choice),
        place_(place),
        rules_(rules),
        builder_(builder),
        tensors_(static_cast<int64_t>(OptimizerTensors(builder.plan(), rules.layouts()).size())),
        flat_(builder.plan().units(0).has_flat()),
        sums_(flat_ ? 1 : tensors_) {
    for (const ShardingRules::Gradient& g : rules.gradients()) gradients_.push_back(g.buffer);
  }

  void Run() {
    Norms();
    if (place_.ranks > 1) AllReduce();
    Scale();
    if (!place_.on_host) return;
    const OpId scale = builder_.last_op();  // the host does not go on before its work is done
    pb::Op& wait = builder_.Issue(kHost, {}, {});
    wait.mutable_release();
    wait.add_host_waits(scale);
  }

 private:
  BufferId Allocate(int64_t numel) {
    const BufferId id = builder_.Allocate(numel * SizeOf(place_.original), pb::TEMP, place_.stream);
    if (place_.on_host) builder_.buffer(id).set_host(true);
    return id;
  }

  // One norm after the other; then all in one tensor, which a single rank takes for what others
  // send each other the squares of: of each, or of flat parameters that of the norm of all.
  void Norms() {
    for (int64_t i = 0; i < tensors_; ++i) norms_.push_back(Allocate(1));
    norms_.push_back(Allocate(tensors_));
    if (place_.ranks > 1) norms_.push_back(Allocate(sums_));
    pb::Op& op = builder_.Issue(place_.stream, gradients_, norms_);
    AddOffsets(rules_, op);
    op.mutable_clip_norms()->set_loop(choice_.loop);
    if (!flat_ || place_.ranks == 1) return;
    for (size_t i = 0; i + 1 < norms_.size(); ++i) builder_.Free(norms_[i]);
    norms_ = {norms_.back()};
  }

  void AllReduce() {
    AllReduceInPlace(builder_, norms_.back(), sums_, place_.original, place_.group,
                     pb::ReduceScatter::SUM, place_.stream);
  }

  void Scale() {
    std::vector<BufferId> temporaries;
    if (place_.ranks > 1) {
      for (int i = 0; i < kVectorsAfterAllReduce; ++i) temporaries.push_back(Allocate(sums_));
    } else {
      temporaries.push_back(Allocate(1));  // the norm of all
    }
    std::vector<BufferId> in = gradients_;
    in.push_back(norms_.back());
    pb::Op& op = builder_.Issue(place_.stream, in, gradients_);
    AddOffsets(rules_, op);
    pb::ClipScale& scale = *op.mutable_clip_scale();
    scale.set_max_norm(choice_.max_norm);
    scale.set_loop(choice_.loop);
    for (BufferId b : temporaries) builder_.Free(b);
    for (BufferId b : norms_) builder_.Free(b);
  }

  const ClipChoice choice_;
  const UpdatePlace place_;
  const ShardingRules& rules_;
  PlanBuilder& builder_;
  const int64_t tensors_;
  const bool flat_;
  const int64_t sums_;  // elements of what ranks send each other
  std::vector<BufferId> gradients_;
  std::vector<BufferId> norms_;  // the last of them: the squares
};

}  // namespace

void AddClip(const ClipChoice& choice, const UpdatePlace& place, const ShardingRules& rules,
             PlanBuilder& builder) {
  builder.BeginSegment("clip");
  builder.SetPhase(pb::CLIP);
  builder.SetUnit(-1);
  ClipLowering(choice, place, rules, builder).Run();
}

}  // namespace foreshard
