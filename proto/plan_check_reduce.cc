// Rule reduce: from the gradients of a unit to what the optimizer reads.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "proto/plan_check_contents.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

class ReductionCheck {
 public:
  ReductionCheck(Contents& contents, const pb::Op& op)
      : contents_(contents), plan_(contents.plan()), op_(op) {}

  Status SplitGradient() {
    RETURN_IF_ERROR(IsGradient("reads", op_.in(0)));
    RETURN_IF_ERROR(IsGradient("writes", op_.out(0)));
    return Leave(Data::kSplit, op_.split_gradient().parameter());
  }

  Status CopyIn() {
    for (const int32_t b : op_.in()) RETURN_IF_ERROR(IsGradient("reads", b));
    RETURN_IF_ERROR(ReadsSplit());
    return Leave(Data::kGradients);
  }

  Status Reduce() {
    RETURN_IF_ERROR(
        contents_.Reads(op_, "reduce", Data::kGradients, "its unit's gradients copied in"));
    if (op_.has_reduce_scatter()) {
      const pb::Group& group = plan_.groups(op_.reduce_scatter().group());
      if (group.stride() != 1 || group.size() != plan_.mesh().shard_size()) {
        return contents_.Broken(
            "reduce", fmt::format("is over {} ranks with stride {}, expected a "
                                  "shard group of {}",
                                  group.size(), group.stride(), plan_.mesh().shard_size()));
      }
    }
    return Leave(Data::kReduced);
  }

  Status AllReduce() { return ReadsReduced(op_.in(0)); }

  Status Divide() {
    if (contents_.Holds(op_.in(0), Data::kGradients, op_.unit())) return OkStatus();
    return ReadsReduced(op_.in(0));
  }

  Status AddReduced() {
    RETURN_IF_ERROR(ReadsReduced(op_.in(0)));
    return ReadsReduced(op_.in(1));
  }

  Status Finalize() {
    if (op_.grad_finalize().accumulate()) return Accumulate();
    RETURN_IF_ERROR(contents_.Reads(op_, "reduce", Data::kReduced, "its unit's reduced shard"));
    if (op_.out().empty()) contents_[op_.in(0)].data = Data::kFinalized;
    return Leave(Data::kFinalized);
  }

  Status CopyToHost() {
    const Content& in = contents_[op_.in(0)];
    if (!IsReducedOrFinalized(op_.in(0)) || in.parameter >= 0) {
      return contents_.Broken(
          "reduce", fmt::format("reads buffer {}, not the gradient of its unit", op_.in(0)));
    }
    // What has been copied is the gradient: nothing may be made of it any more.
    contents_[op_.in(0)].data = Data::kFinalized;
    const bool flat = plan_.units(op_.unit()).has_flat();
    return Leave(Data::kFinalized, flat ? -1 : op_.copy_to_host().parameter());
  }

 private:
  Status Leave(Data data, int32_t parameter = -1) {
    return contents_.Leave(op_, {data, op_.unit(), parameter, false});
  }

  Status IsGradient(std::string_view verb, int32_t b) const {
    const pb::Buffer& buffer = plan_.buffers(b);
    if (buffer.has_unit() && buffer.unit() == op_.unit()) return OkStatus();
    return contents_.Broken("reduce",
                            fmt::format("{} buffer {}, no gradient of its unit", verb, b));
  }

  // Gradients that were split come in layout order. Where all trainable parameters of the unit have
  // one, it is known which had to be split.
  Status ReadsSplit() const {
    const auto& parameters = plan_.units(op_.unit()).parameters();
    std::vector<int32_t> trainable;
    for (const int32_t p : parameters) {
      if (!plan_.parameters(p).frozen()) trainable.push_back(p);
    }
    const bool all = op_.in_size() == static_cast<int>(trainable.size());
    auto next = trainable.begin();
    for (int i = 0; i < op_.in_size(); ++i) {
      const Content& in = contents_[op_.in(i)];
      const bool split = in.data == Data::kSplit;
      const int32_t expected = all ? trainable[static_cast<size_t>(i)] : -1;
      if (split) next = std::find(next, trainable.end(), in.parameter);
      const bool misplaced =
          split && (next == trainable.end() || (all && in.parameter != expected));
      const bool unsplit = !split && all && plan_.mesh().shard_size() > 1 &&
                           plan_.parameters(expected).shard_dim() > 0;
      if (!misplaced && !unsplit) continue;
      return contents_.Broken(
          "reduce", fmt::format("reads buffer {}, {}", op_.in(i),
                                misplaced ? "a split gradient that is not in layout order"
                                          : "whose parameter is not sharded along its rows, and "
                                            "which was not split"));
    }
    return OkStatus();
  }

  bool IsReducedOrFinalized(int32_t b) const {
    return contents_.Holds(b, Data::kReduced, op_.unit()) ||
           contents_.Holds(b, Data::kFinalized, op_.unit());
  }

  Status ReadsReduced(int32_t b) const {
    if (contents_.Holds(b, Data::kReduced, op_.unit())) return OkStatus();
    return contents_.Broken("reduce",
                            fmt::format("reads buffer {}, no reduced shard of its unit", b));
  }

  // Both are of the unit, or on the host of one parameter.
  Status Accumulate() {
    for (const int32_t b : op_.in()) {
      if (IsReducedOrFinalized(b)) continue;
      return contents_.Broken("reduce",
                              fmt::format("adds buffer {}, no reduced shard of its unit", b));
    }
    const Content& sum = contents_[op_.in(1)];
    if (sum.data != Data::kFinalized || sum.parameter != contents_[op_.in(0)].parameter) {
      return contents_.Broken(
          "reduce",
          fmt::format("adds to buffer {}, not the gradient of an earlier micro-batch", op_.in(1)));
    }
    return OkStatus();
  }

  Contents& contents_;
  const pb::Plan& plan_;
  const pb::Op& op_;
};

}  // namespace

bool IsPartOfReduction(const pb::Op& op) {
  switch (op.kind_case()) {
    case pb::Op::kConcatGradients:
    case pb::Op::kSplitGradient:
    case pb::Op::kReduceCopyIn:
    case pb::Op::kReduceScatter:
    case pb::Op::kLocalReduce:
    case pb::Op::kDivide:
    case pb::Op::kAddReduced:
    case pb::Op::kGradFinalize:
    case pb::Op::kCopyToHost:
      return true;
    case pb::Op::kAllReduce:
      return op.phase() != pb::CLIP;
    default:
      return false;
  }
}

Status CheckReduction(Contents& contents, const pb::Op& op) {
  const bool ends = op.has_grad_finalize() || op.has_copy_to_host();
  if (contents.plan().units(op.unit()).has_flat()) {
    if (!ends) return CheckFlatReduction(contents, op);
    RETURN_IF_ERROR(CheckMean(contents, op));
  }
  ReductionCheck check(contents, op);
  switch (op.kind_case()) {
    case pb::Op::kSplitGradient:
      return check.SplitGradient();
    case pb::Op::kReduceCopyIn:
      return check.CopyIn();
    case pb::Op::kReduceScatter:
    case pb::Op::kLocalReduce:
      return check.Reduce();
    case pb::Op::kAllReduce:
      return check.AllReduce();
    case pb::Op::kDivide:
      return check.Divide();
    case pb::Op::kAddReduced:
      return check.AddReduced();
    case pb::Op::kGradFinalize:
      return check.Finalize();
    case pb::Op::kCopyToHost:
      return check.CopyToHost();
    default:
      return OkStatus();
  }
}

}  // namespace foreshard::plan_check
