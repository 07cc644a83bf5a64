// Follows what every buffer holds: rules written, gather, reduce, clip, optimizer and category.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "proto/plan_check_contents.h"
#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

template <typename Buffers>
bool Contains(const Buffers& buffers, int32_t buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

class DataWalk {
 public:
  explicit DataWalk(const pb::Plan& plan)
      : plan_(plan),
        contents_(plan),
        reduced_(static_cast<size_t>(plan.units_size())),
        handed_over_(static_cast<size_t>(plan.parameters_size())) {
    std::vector<bool> listed(static_cast<size_t>(plan.buffers_size()), false);
    for (const OptimizerTensor& t : OptimizerTensors(plan)) {
      if (!listed[static_cast<size_t>(t.shard)]) trainable_.push_back(t.shard);
      listed[static_cast<size_t>(t.shard)] = true;
    }
    for (const pb::Buffer& b : plan.buffers()) has_buckets_ |= b.category() == pb::BUCKET;
  }

  void BeginProgram(int number) {
    contents_.MoveTo(number);
    std::fill(reduced_.begin(), reduced_.end(), false);
  }
  void BeginSegment(int, int, int) {}
  Status EndProgram(int) { return OkStatus(); }

  Status Visit(int segment, int index) {
    contents_.MoveTo(segment, index);
    const pb::Op& op = plan_.segments(segment).ops(index);
    for (const int32_t b : op.allocs()) {
      content(b) = {};
      life(b) = {plan_.buffers(b).category(), op.phase()};
    }
    for (const int32_t b : op.in()) {
      if (content(b).data == Data::kNothing && plan_.buffers(b).bytes() > 0) {
        return Broken("written", fmt::format("reads buffer {}, which nothing has written", b));
      }
    }
    RETURN_IF_ERROR(CheckCategories(op));
    RETURN_IF_ERROR(CheckKind(op));
    for (const pb::Settle& settle : op.settles()) category(settle.buffer()) = settle.category();
    return CheckFreed(op);
  }

 private:
  Content& content(int32_t b) { return contents_[b]; }
  Life& life(int32_t b) { return contents_.life(b); }
  pb::Category& category(int32_t b) { return contents_.category(b); }

  Status Broken(std::string_view rule, const std::string& what) const {
    return contents_.Broken(rule, what);
  }

  // What lives longer than an op, which may have scratch, was written for some reason.
  Status CheckFreed(const pb::Op& op) {
    for (const int32_t b : op.frees()) {
      RETURN_IF_ERROR(CheckActivation(op, b));
      if (content(b).data != Data::kNothing || plan_.buffers(b).bytes() == 0) continue;
      if (Contains(op.allocs(), b)) continue;
      return Broken("written", fmt::format("frees buffer {}, which nothing has written", b));
    }
    return OkStatus();
  }

  // ---- categories

  // ACTIVATION is what forward leaves to a later phase, TEMP what it does not.
  Status CheckActivation(const pb::Op& op, int32_t b) {
    const bool kept = life(b).allocated == pb::FORWARD && op.phase() != pb::FORWARD;
    if (category(b) != (kept ? pb::TEMP : pb::ACTIVATION)) return OkStatus();
    return Broken("category",
                  fmt::format("frees buffer {} of category {}, which was allocated in {}", b,
                              pb::Category_Name(category(b)), pb::Phase_Name(life(b).allocated)));
  }

  template <typename Buffers>
  Status All(const Buffers& buffers, std::string_view verb, pb::Category expected) {
    for (const int32_t b : buffers) {
      if (category(b) == expected) continue;
      return Broken("category",
                    fmt::format("{} buffer {} of category {}, expected {}", verb, b,
                                pb::Category_Name(category(b)), pb::Category_Name(expected)));
    }
    return OkStatus();
  }

  Status CheckCategories(const pb::Op& op) {
    switch (op.kind_case()) {
      case pb::Op::kCopyToDevice:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::SHARDED_PARAM));
        return All(op.out(), "writes", pb::CAST);
      case pb::Op::kCastShard:
        return All(op.out(), "writes", pb::CAST);
      case pb::Op::kGatherCopyIn:
        return All(op.out(), "writes", pb::AG_OUTPUT);
      case pb::Op::kAllGather:
        return All(op.out(), "writes", IsFlat(op) ? pb::UNSHARDED_PARAM : pb::AG_OUTPUT);
      case pb::Op::kJoinShards:
      case pb::Op::kLocalGather:
        return All(op.out(), "writes", pb::UNSHARDED_PARAM);
      case pb::Op::kKeepSlice:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::UNSHARDED_PARAM));
        return All(op.out(), "writes", pb::POST_FORWARD_SHARD);
      case pb::Op::kSplitGradient:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::UNSHARDED_GRAD));
        return All(op.out(), "writes", pb::UNSHARDED_GRAD);
      case pb::Op::kConcatGradients:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::PARAM_GRAD));
        return All(op.out(), "writes", pb::UNSHARDED_GRAD);
      case pb::Op::kReduceCopyIn:
        if (!IsFlat(op)) RETURN_IF_ERROR(All(op.in(), "reads", pb::UNSHARDED_GRAD));
        return All(op.out(), "writes", pb::RS_INPUT);
      case pb::Op::kReduceScatter:
      case pb::Op::kLocalReduce:
        if (category(op.out(0)) == pb::SHARDED_GRAD) return OkStatus();
        return All(op.out(), "writes", pb::RS_OUTPUT);
      case pb::Op::kGradFinalize:
        return CheckFinalized(op);
      case pb::Op::kCopyToHost:
        return All(op.out(), "writes", pb::SHARDED_GRAD);
      case pb::Op::kOptimizerInit:
        return All(op.out(), "writes", pb::OPTIMIZER_STATE);
      case pb::Op::kOptimizerStep:
        return AllGradients(op.in(), "reads");
      case pb::Op::kClipNorms:
        RETURN_IF_ERROR(AllGradients(op.in(), "reads"));
        return All(op.out(), "writes", pb::TEMP);
      case pb::Op::kClipScale:
        return AllGradients(op.out(), "writes");
      case pb::Op::kBucketCopyIn:
        return All(op.out(), "writes", pb::BUCKET);
      case pb::Op::kBucketCopyOut:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::BUCKET));
        return All(op.out(), "writes", pb::UNSHARDED_GRAD);
      case pb::Op::kBroadcast:
        return All(op.out(), "writes", pb::SHARDED_PARAM);
      case pb::Op::kCompute:
        return CheckWritten(op);
      default:
        return OkStatus();
    }
  }

  bool IsFlat(const pb::Op& op) const { return plan_.units(op.unit()).has_flat(); }

  // With buckets autograd's gradient is what was reduced, or the bucket is.
  // A flat parameter's gradient of which nothing is sharded stays what it was made as.
  template <typename Buffers>
  Status AllGradients(const Buffers& buffers, std::string_view verb) {
    for (const int32_t b : buffers) {
      const pb::Buffer& buffer = plan_.buffers(b);
      const bool whole = plan_.mesh().shard_size() == 1 && buffer.has_unit() &&
                         plan_.units(buffer.unit()).has_flat();
      const bool bucketed = category(b) == pb::BUCKET || category(b) == pb::UNSHARDED_GRAD;
      if (has_buckets_ && bucketed) continue;
      if (whole && (category(b) == pb::UNSHARDED_GRAD || category(b) == pb::RS_INPUT)) continue;
      const int32_t one[] = {b};
      RETURN_IF_ERROR(All(one, verb, pb::SHARDED_GRAD));
    }
    return OkStatus();
  }

  // The gradient itself, or a cast that is yet to be added to it.
  Status CheckFinalized(const pb::Op& op) {
    if (op.out().empty()) return AllGradients(op.in(), "leaves");
    const bool casts = !op.grad_finalize().accumulate() && op.in(0) != op.out(0);
    if (casts && category(op.out(0)) == pb::RS_OUTPUT) return OkStatus();
    return AllGradients(op.out(), "leaves");
  }

  // What kernels write; a forward that runs again writes nothing else than RECOMPUTE.
  Status CheckWritten(const pb::Op& op) {
    if (op.compute().recompute()) return All(op.out(), "writes", pb::RECOMPUTE);
    const bool adds = UnitOfSum(contents_, op) >= 0;  // to a gradient, whatever that counts as
    for (const int32_t b : op.out()) {
      if (category(b) == pb::ACTIVATION || category(b) == pb::UNSHARDED_GRAD ||
          category(b) == pb::PARAM_GRAD || adds) {
        continue;
      }
      const int32_t written[] = {b};
      RETURN_IF_ERROR(All(written, "writes", pb::TEMP));
    }
    return OkStatus();
  }

  // ---- what each kind needs and leaves

  Status CheckKind(const pb::Op& op) {
    if (IsPartOfGather(op)) return CheckGather(contents_, op);
    if (has_buckets_ && op.has_all_reduce()) return OkStatus();  // rule bucket has all of it
    if (IsPartOfReduction(op)) {
      if (op.has_reduce_scatter() || op.has_local_reduce() || (op.has_all_reduce() && IsFlat(op))) {
        reduced_[static_cast<size_t>(op.unit())] = true;
      }
      return CheckReduction(contents_, op);
    }
    switch (op.kind_case()) {
      case pb::Op::kOptimizerStep:
        return CheckUpdate(op);
      case pb::Op::kClipNorms:
        RETURN_IF_ERROR(CheckHandedOver(op.in(), "clip"));
        return contents_.Leave(op, {.data = Data::kNorms});
      case pb::Op::kAllReduce:
        return CheckNormsReduced(op);
      case pb::Op::kClipScale:
        return CheckClipped(op);
      case pb::Op::kCompute:
        return CheckCompute(op);
      default:
        return contents_.Leave(op, {.data = Data::kAnything});
    }
  }

  Status CheckCompute(const pb::Op& op) {
    for (const int32_t b : op.in()) {
      if (HoldsParameters(b)) continue;
      return Broken("gather", fmt::format("reads buffer {}, which no gather of its unit has "
                                          "written last",
                                          b));
    }
    const int32_t unit = UnitOfSum(contents_, op);
    if (unit >= 0) return contents_.Leave(op, {Data::kFlatGradient, unit});
    return contents_.Leave(op, {.data = Data::kAnything});
  }

  // Of what a kernel reads: it is no parameter, or all of one is there.
  bool HoldsParameters(int32_t b) const {
    const pb::Buffer& buffer = plan_.buffers(b);
    const bool whole = plan_.mesh().shard_size() == 1;
    switch (contents_.category(b)) {
      case pb::UNSHARDED_PARAM:
        return buffer.has_unit() && contents_.Holds(b, Data::kParameters, buffer.unit());
      case pb::SHARDED_PARAM:
        return whole;
      case pb::CAST:
        return whole && buffer.has_unit() && plan_.units(buffer.unit()).has_flat() &&
               (contents_.Holds(b, Data::kCastShard, buffer.unit()) ||
                contents_.Holds(b, Data::kOnDevice, buffer.unit()));
      default:
        return true;
    }
  }

  // Every unit that was reduced hands over one gradient, and all that is trained is written.
  Status CheckUpdate(const pb::Op& op) {
    RETURN_IF_ERROR(CheckHandedOver(op.in(), "optimizer"));
    return CheckUpdated(op);
  }

  Status CheckNormsReduced(const pb::Op& op) {
    if (content(op.in(0)).data != Data::kNorms) {
      return Broken("clip",
                    fmt::format("reduces buffer {}, which clip_norms has not written", op.in(0)));
    }
    return contents_.Leave(op, {.data = Data::kSquares});
  }

  // The gradients stay what they are.
  Status CheckClipped(const pb::Op& op) {
    RETURN_IF_ERROR(CheckHandedOver(op.out(), "clip"));
    const int32_t squares = op.in(op.in_size() - 1);
    const Data expected = plan_.mesh().shard_size() > 1 ? Data::kSquares : Data::kNorms;
    if (content(squares).data == expected) return OkStatus();
    return Broken("clip", fmt::format("reads buffer {}, no norms of all gradients", squares));
  }

  // The gradient of each unit that was reduced, or on the host one of each of its trainable
  // parameters.
  template <typename Buffers>
  Status CheckHandedOver(const Buffers& gradients, std::string_view rule) {
    if (has_buckets_) return OkStatus();  // rule bucket
    std::fill(handed_over_.begin(), handed_over_.end(), false);
    for (const int32_t b : gradients) {
      const Content& c = content(b);
      if (c.data != Data::kReduced && c.data != Data::kFinalized) {
        return Broken(rule, fmt::format("reads buffer {}, no reduced gradient", b));
      }
      for (const int32_t p : plan_.units(c.unit).parameters()) {
        if (plan_.parameters(p).frozen() || (c.parameter >= 0 && p != c.parameter)) continue;
        if (handed_over_[static_cast<size_t>(p)]) {
          return Broken(rule, fmt::format("reads a second gradient of unit \"{}\"",
                                          plan_.units(c.unit).name()));
        }
        handed_over_[static_cast<size_t>(p)] = true;
      }
    }
    for (int p = 0; p < plan_.parameters_size(); ++p) {
      const int32_t unit = plan_.parameters(p).unit();
      const bool missing = reduced_[static_cast<size_t>(unit)] && !plan_.parameters(p).frozen() &&
                           !handed_over_[static_cast<size_t>(p)];
      if (!missing) continue;
      return Broken(
          rule, fmt::format("does not read the gradient of unit \"{}\"", plan_.units(unit).name()));
    }
    return OkStatus();
  }

  // out = the trainable shards in the plan's order, then the state that optimizer_init has written.
  Status CheckUpdated(const pb::Op& op) {
    const int shards = static_cast<int>(trainable_.size());
    if (op.out_size() < shards ||
        !std::equal(trainable_.begin(), trainable_.end(), op.out().begin())) {
      return Broken("optimizer", "does not first write the shards of all trainable parameters");
    }
    for (int i = shards; i < op.out_size(); ++i) {
      const int32_t b = op.out(i);
      if (category(b) == pb::OPTIMIZER_STATE && content(b).data != Data::kNothing) continue;
      return Broken("optimizer", fmt::format("updates buffer {}, no optimizer state that was "
                                             "written",
                                             b));
    }
    return OkStatus();
  }

  const pb::Plan& plan_;
  Contents contents_;
  std::vector<int32_t> trainable_;  // shards in the plan's order
  bool has_buckets_ = false;
  std::vector<bool> reduced_;      // units, in this program
  std::vector<bool> handed_over_;  // scratch: parameters whose gradients were read
};

}  // namespace

Status CheckData(const pb::Plan& plan) {
  DataWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
