// Units with a flat parameter: rules gather, reduce and view, from the shard to what kernels read
// and from their gradients to what the optimizer reads.
#include <fmt/format.h>

#include <algorithm>

#include "proto/plan_check_contents.h"
#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

class FlatCheck {
 public:
  FlatCheck(Contents& contents, const pb::Op& op)
      : contents_(contents),
        plan_(contents.plan()),
        op_(op),
        unit_(plan_.units(op.unit())),
        ranks_(plan_.mesh().shard_size()) {}

  Status Gather() {
    switch (op_.kind_case()) {
      case pb::Op::kCopyToDevice:
        if (!IsShard(op_.in(0))) return Misread("gather", "not the shard of its unit");
        return Leave({Data::kOnDevice, op_.unit()});
      case pb::Op::kCastShard:
        if (op_.in_size() != 1 || !(IsShard(op_.in(0)) || Holds(Data::kOnDevice))) {
          return contents_.Broken("gather", "does not read the shard of its unit alone");
        }
        return Leave({Data::kCastShard, op_.unit()});
      case pb::Op::kAllGather:
        return AllGather();
      default:
        return NotForFlat("gather");
    }
  }

  Status Reduction() {
    switch (op_.kind_case()) {
      case pb::Op::kConcatGradients:
        return Concat();
      case pb::Op::kReduceCopyIn:
        return CopyIn();
      case pb::Op::kDivide:
        return Divide();
      case pb::Op::kReduceScatter:
        return ReduceScatter();
      case pb::Op::kAllReduce:
        return AllReduce();
      default:
        return NotForFlat("reduce");
    }
  }

  // What was made of the gradients is their mean over all ranks.
  Status IsMean() const {
    const double ranks = plan_.mesh().world_size();
    for (const int32_t b : op_.in()) {
      const Content& in = contents_[b];
      if (in.data != Data::kReduced || (in.ranks == ranks && in.divisor == ranks)) continue;
      return contents_.Broken(
          "reduce", fmt::format("buffer {} is the sum over {} ranks divided by {}, expected the "
                                "mean over all {}",
                                b, in.ranks, in.divisor, ranks));
    }
    return OkStatus();
  }

 private:
  bool IsShard(int32_t buffer) const { return buffer == unit_.flat().sharded_buffer(); }
  bool Holds(Data data) const { return contents_.Holds(op_.in(0), data, op_.unit()); }
  bool HoldsGradient() const { return Holds(Data::kFlatGradient) || Holds(Data::kGradients); }
  Status Leave(const Content& content) { return contents_.Leave(op_, content); }

  Status Misread(std::string_view rule, std::string_view what) const {
    return contents_.Broken(rule, fmt::format("reads buffer {}, {}", op_.in(0), what));
  }
  Status NotForFlat(std::string_view rule) const {
    return contents_.Broken(rule, "is not for units with a flat parameter");
  }
  // A collective over the shard group moves the whole flat parameter, padded.
  Status IsOfAll(std::string_view rule, int32_t group, int64_t elems) const {
    const pb::Group& over = plan_.groups(group);
    if (over.stride() == 1 && over.size() == ranks_ && elems == unit_.gathered_numel()) {
      return OkStatus();
    }
    return contents_.Broken(
        rule, fmt::format("moves {} elements over {} ranks with stride {}, expected the {} of its "
                          "unit over a shard group of {}",
                          elems, over.size(), over.stride(), unit_.gathered_numel(), ranks_));
  }

  Status AllGather() {
    const pb::AllGather& gather = op_.all_gather();
    if (!IsShard(op_.in(0)) && !Holds(Data::kOnDevice) && !Holds(Data::kCastShard)) {
      return Misread("gather", "neither the shard of its unit nor a copy of it");
    }
    RETURN_IF_ERROR(IsOfAll("gather", gather.group(), gather.elems_out()));
    return Leave({Data::kParameters, op_.unit()});
  }

  Status Concat() {
    for (const int32_t b : op_.in()) {
      const pb::Buffer& buffer = plan_.buffers(b);
      if (buffer.has_unit() && buffer.unit() == op_.unit()) continue;
      return contents_.Broken("reduce", fmt::format("reads buffer {}, no gradient of its unit", b));
    }
    return Leave({Data::kFlatGradient, op_.unit()});
  }

  Status CopyIn() {
    const pb::ReduceCopyIn& copy = op_.reduce_copy_in();
    if (op_.in_size() != 1 || !HoldsGradient()) {
      return contents_.Broken("reduce", "does not read the gradient of its unit alone");
    }
    if (copy.elems_out() != unit_.flat().numel() && copy.elems_out() != unit_.gathered_numel()) {
      return contents_.Broken(
          "reduce", fmt::format("writes {} elements, the flat parameter has {} and with padding {}",
                                copy.elems_out(), unit_.flat().numel(), unit_.gathered_numel()));
    }
    Content content = contents_[op_.in(0)];
    content.data = Data::kGradients;
    return Leave(content);
  }

  Status Divide() {
    if (!HoldsGradient() && !Holds(Data::kReduced)) {
      return Misread("reduce", "neither the gradient of its unit nor what was reduced of it");
    }
    contents_[op_.in(0)].divisor *= op_.divide().divisor();
    return OkStatus();
  }

  Status ReduceScatter() {
    const pb::ReduceScatter& reduce = op_.reduce_scatter();
    if (!HoldsGradient()) return Misread("reduce", "not the gradient of its unit");
    RETURN_IF_ERROR(IsOfAll("reduce", reduce.group(), reduce.elems_in()));
    return LeaveSum(reduce.group(), reduce.reduction());
  }

  // Of what was reduced, or where nothing is sharded of the gradient.
  Status AllReduce() {
    if (!Holds(Data::kReduced) && !(ranks_ == 1 && HoldsGradient())) {
      return Misread("reduce", "no reduced shard of its unit");
    }
    return LeaveSum(op_.all_reduce().group(), op_.all_reduce().reduction());
  }

  Status LeaveSum(int32_t group, pb::ReduceScatter::Reduction reduction) {
    Content content = contents_[op_.in(0)];
    const double ranks = plan_.groups(group).size();
    content.data = Data::kReduced;
    content.ranks *= ranks;
    if (reduction == pb::ReduceScatter::AVG) content.divisor *= ranks;
    return Leave(content);
  }

  Contents& contents_;
  const pb::Plan& plan_;
  const pb::Op& op_;
  const pb::Unit& unit_;
  const int32_t ranks_;
};

// The place of each parameter in the unit's layout, or -1.
int PlaceOf(const pb::Unit& unit, int32_t parameter) {
  const auto found = std::ranges::find(unit.parameters(), parameter);
  return found == unit.parameters().end() ? -1
                                          : static_cast<int>(found - unit.parameters().begin());
}

}  // namespace

Status CheckFlatGather(Contents& contents, const pb::Op& op) {
  return FlatCheck(contents, op).Gather();
}

Status CheckFlatReduction(Contents& contents, const pb::Op& op) {
  return FlatCheck(contents, op).Reduction();
}

Status CheckMean(Contents& contents, const pb::Op& op) { return FlatCheck(contents, op).IsMean(); }

// What add_ leaves where a gradient was: the sum of two, which nobody has reduced.
int32_t UnitOfSum(const Contents& contents, const pb::Op& op) {
  const pb::Plan& plan = contents.plan();
  if (plan.kernels(op.compute().kernel()).name() != "add_" || op.out(0) != op.in(0)) return -1;
  const int32_t unit = contents[op.in(0)].unit;
  for (const int32_t b : op.in()) {
    const Data data = contents[b].data;
    // Without shards a gradient that was reduced is as large as one that was not.
    const bool reduced =
        plan.mesh().shard_size() == 1 && (data == Data::kReduced || data == Data::kFinalized);
    if (unit < 0 || contents[b].unit != unit || !plan.units(unit).has_flat()) return -1;
    if (data != Data::kFlatGradient && !reduced) return -1;
  }
  return unit;
}

Status CheckConcat(const OpContext& c) {
  const pb::Op& op = c.op();
  const pb::ConcatGradients& concat = op.concat_gradients();
  const pb::Unit& unit = c.plan.units(op.unit());
  if (concat.parameters_size() != op.in_size() || op.out_size() != 1) {
    return c.Broken("collective",
                    fmt::format("joins {} buffers for {} parameters into {}", op.in_size(),
                                concat.parameters_size(), op.out_size()));
  }
  if (!unit.has_flat() || concat.elems() != unit.flat().numel()) {
    return c.Broken("reduce", fmt::format("joins {} elements, the flat parameter of its unit has "
                                          "{}",
                                          concat.elems(), unit.flat().numel()));
  }
  int last = -1;
  for (int i = 0; i < op.in_size(); ++i) {
    const int place = PlaceOf(unit, concat.parameters(i));
    if (place <= last) {
      return c.Broken("reduce", fmt::format("joins parameter {}, none of its unit or not in layout "
                                            "order",
                                            concat.parameters(i)));
    }
    last = place;
    const int64_t numel = Numel(c.plan.parameters(concat.parameters(i)).shape()).value();
    ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, numel, concat.dtype()));
    RETURN_IF_ERROR(Whole(c, op.in(i), bytes));
  }
  ASSIGN_OR_RETURN(const int64_t bytes, SizeIn(c, concat.elems(), concat.dtype()));
  return Whole(c, op.out(0), bytes);
}

Status CheckFlatView(const OpContext& c, const pb::TensorType& type, int32_t b, int64_t offset,
                     int64_t end) {
  const pb::Buffer& buffer = c.buffer(b);
  const bool parameters = buffer.category() == pb::UNSHARDED_PARAM ||
                          buffer.category() == pb::CAST || buffer.category() == pb::SHARDED_PARAM;
  if (!parameters || !buffer.has_unit() || end == 0) return OkStatus();
  const pb::Unit& unit = c.plan.units(buffer.unit());
  if (!unit.has_flat()) return OkStatus();
  const int64_t element = ElementBytes(type.dtype());
  const auto holds = [&](int32_t index) {
    const pb::Parameter& p = c.plan.parameters(index);
    const int64_t numel = Numel(p.shape()).value();
    return offset >= p.flat_offset() && end / element <= p.flat_offset() + numel;
  };
  const bool fits = buffer.bytes() / element == unit.gathered_numel();
  if (fits && std::ranges::any_of(unit.parameters(), holds)) return OkStatus();
  return c.Broken("view", fmt::format("elements {} to {} of buffer {} are no part of one parameter",
                                      offset, end / element, b));
}

}  // namespace foreshard::plan_check
