// Rule gather: from shards to unsharded parameters, and back to what fewer ranks keep.
#include <fmt/format.h>

#include "proto/plan_check_contents.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

class GatherCheck {
 public:
  GatherCheck(Contents& contents, const pb::Op& op)
      : contents_(contents),
        plan_(contents.plan()),
        op_(op),
        parameters_(plan_.units(op.unit()).parameters()) {}

  Status CastShard() {
    if (ReadsAll(Data::kKept)) return Leave(Data::kCastShard, -1, true);
    const int32_t only = op_.in_size() == 1 ? Only(op_.in(0)) : -1;
    if (only < 0) RETURN_IF_ERROR(ReadsShards());
    return Leave(Data::kCastShard, parameters_.size() == 1 ? -1 : only, false);
  }

  Status CopyIn() {
    const bool alone = op_.in_size() == 1 && contents_[op_.in(0)].data == Data::kCastShard;
    if (alone && contents_[op_.in(0)].parameter < 0) {
      RETURN_IF_ERROR(Reads(Data::kCastShard, "its unit's cast shard"));
      return Leave(Data::kSlice, -1, contents_[op_.in(0)].kept);
    }
    if (ReadsAll(Data::kKept)) return Leave(Data::kSlice, -1, true);
    if (!ReadsAll(Data::kOnDevice) && !ReadsAll(Data::kCastShard)) RETURN_IF_ERROR(ReadsShards());
    return Leave(Data::kSlice, -1, false);
  }

  // Over the ranks that have the parts of it between them.
  Status AllGather() {
    RETURN_IF_ERROR(Reads(Data::kSlice, "its unit's shard copied in"));
    const bool kept = contents_[op_.in(0)].kept;
    RETURN_IF_ERROR(IsOver(op_.all_gather().group(), kept ? plan_.units(op_.unit()).reshard_to()
                                                          : plan_.mesh().shard_size()));
    return Leave(Data::kGathered, -1, kept);
  }

  // One buffer a parameter, of its padded size in all ranks.
  Status CopyOut() {
    RETURN_IF_ERROR(Reads(Data::kGathered, "its unit's gather output"));
    if (op_.out_size() != parameters_.size()) {
      return contents_.Broken("gather", fmt::format("writes {} buffers for {} parameters",
                                                    op_.out_size(), parameters_.size()));
    }
    const bool kept = contents_[op_.in(0)].kept;
    for (int i = 0; i < op_.out_size(); ++i) {
      const pb::Parameter& p = plan_.parameters(parameters_.Get(i));
      const bool stacked = p.shard_dim() > 0 && !kept;
      RETURN_IF_ERROR(IsUnsharded(op_.out(i), p, op_.copy_out().dtype()));
      RETURN_IF_ERROR(HasCategory(op_.out(i), stacked ? pb::TEMP : pb::UNSHARDED_PARAM));
      contents_[op_.out(i)] = {stacked ? Data::kStacked : Data::kParameters, op_.unit(),
                               parameters_.Get(i), kept};
    }
    return OkStatus();
  }

  Status JoinShards() {
    int i = 0;
    for (const int32_t p : parameters_) {
      if (plan_.parameters(p).shard_dim() == 0) continue;
      if (i >= op_.in_size() || !IsOf(op_.in(i), Data::kStacked, p)) {
        return contents_.Broken("gather", fmt::format("does not read parameter \"{}\" as it was "
                                                      "copied out, in layout order",
                                                      plan_.parameters(p).path()));
      }
      contents_[op_.out(i)] = {Data::kParameters, op_.unit(), p, false};
      ++i;
    }
    if (i == op_.in_size()) return OkStatus();
    return contents_.Broken("gather", fmt::format("reads {} buffers, {} parameters of its unit are "
                                                  "to be joined",
                                                  op_.in_size(), i));
  }

  Status KeepSlice() {
    RETURN_IF_ERROR(IsOver(op_.keep_slice().group(), plan_.units(op_.unit()).reshard_to()));
    const int32_t parameter = op_.in_size() == 1 ? contents_[op_.in(0)].parameter : -1;
    if (parameter < 0 || !IsOf(op_.in(0), Data::kParameters, parameter)) {
      return contents_.Broken("gather", "does not read one unsharded parameter of its unit");
    }
    return Leave(Data::kKept, parameter, true);
  }

  Status CopyToDevice() {
    const int32_t parameter = ParameterOf(op_.in(0));
    if (parameter >= 0) return Leave(Data::kOnDevice, parameter, false);
    return contents_.Broken(
        "gather", fmt::format("reads buffer {}, no shard of a parameter of its unit", op_.in(0)));
  }

  Status LocalGather() {
    const int32_t parameter = Source(op_.in(0));
    if (parameter < 0) {
      return contents_.Broken("gather", fmt::format("reads buffer {}, neither the shard of a "
                                                    "parameter of its unit nor a cast of one",
                                                    op_.in(0)));
    }
    const pb::Parameter& p = plan_.parameters(parameter);
    if (p.padded_shard_numel() == op_.local_gather().elems()) {
      return Leave(Data::kParameters, parameter, false);
    }
    return contents_.Broken(
        "collective", fmt::format("moves {} elements, parameter \"{}\" has {}",
                                  op_.local_gather().elems(), p.path(), p.padded_shard_numel()));
  }

 private:
  Status Leave(Data data, int32_t parameter, bool kept) {
    return contents_.Leave(op_, {data, op_.unit(), parameter, kept});
  }
  Status Reads(Data data, std::string_view what) const {
    return contents_.Reads(op_, "gather", data, what);
  }
  bool IsOf(int32_t buffer, Data data, int32_t parameter) const {
    return contents_.Holds(buffer, data, op_.unit()) && contents_[buffer].parameter == parameter;
  }

  // One buffer for each parameter of the unit, in layout order.
  bool ReadsAll(Data data) const {
    bool all = op_.in_size() == parameters_.size() && op_.in_size() > 0;
    for (int i = 0; all && i < op_.in_size(); ++i) all = IsOf(op_.in(i), data, parameters_.Get(i));
    return all;
  }

  Status ReadsShards() const {
    bool same = op_.in_size() == parameters_.size();
    for (int i = 0; same && i < op_.in_size(); ++i) {
      same = op_.in(i) == plan_.parameters(parameters_.Get(i)).sharded_buffer();
    }
    if (same) return OkStatus();
    return contents_.Broken("gather",
                            "does not read its unit's shards, one a parameter in layout order");
  }

  // The parameter of the unit that this is the shard of, or -1.
  int32_t ParameterOf(int32_t buffer) const {
    for (const int32_t p : parameters_) {
      if (plan_.parameters(p).sharded_buffer() == buffer) return p;
    }
    return -1;
  }

  // The parameter that may be cast by itself: in a group of one rank its shard, and what was copied
  // to the device. Or -1.
  int32_t Only(int32_t buffer) const {
    if (contents_.Holds(buffer, Data::kOnDevice, op_.unit())) return contents_[buffer].parameter;
    return plan_.mesh().shard_size() == 1 ? ParameterOf(buffer) : -1;
  }

  // The parameter that this is the shard of, or what was made of its shard. Or -1.
  int32_t Source(int32_t buffer) const {
    const Content& content = contents_[buffer];
    const bool made = content.data == Data::kCastShard || content.data == Data::kOnDevice;
    if (!made || content.unit != op_.unit()) return ParameterOf(buffer);
    // The cast of a unit's only parameter is the cast of the unit.
    const bool only = content.parameter < 0 && parameters_.size() == 1;
    return only ? parameters_.Get(0) : content.parameter;
  }

  Status IsOver(int32_t group, int32_t ranks) const {
    const pb::Group& found = plan_.groups(group);
    if (found.stride() == 1 && found.size() == ranks) return OkStatus();
    return contents_.Broken(
        "gather", fmt::format("is over {} ranks with stride {}, expected the {} neighbours that "
                              "hold the unit",
                              found.size(), found.stride(), ranks));
  }

  Status IsUnsharded(int32_t buffer, const pb::Parameter& p, pb::DType dtype) const {
    // The gathered unit has fewer than 2^62 elements, which may still be too many bytes.
    const int64_t bytes =
        Multiply(p.padded_shard_numel() * plan_.mesh().shard_size(), ElementBytes(dtype))
            .value_or(-1);
    if (plan_.buffers(buffer).bytes() == bytes) return OkStatus();
    return contents_.Broken(
        "gather", fmt::format("writes buffer {} of {} bytes, the parameter has {}", buffer,
                              plan_.buffers(buffer).bytes(), bytes));
  }

  Status HasCategory(int32_t buffer, pb::Category expected) const {
    const pb::Category found = contents_.category(buffer);
    if (found == expected) return OkStatus();
    return contents_.Broken("category",
                            fmt::format("writes buffer {} of category {}, expected {}", buffer,
                                        pb::Category_Name(found), pb::Category_Name(expected)));
  }

  Contents& contents_;
  const pb::Plan& plan_;
  const pb::Op& op_;
  const google::protobuf::RepeatedField<int32_t>& parameters_;
};

}  // namespace

bool IsPartOfGather(const pb::Op& op) {
  switch (op.kind_case()) {
    case pb::Op::kCopyToDevice:
    case pb::Op::kCastShard:
    case pb::Op::kGatherCopyIn:
    case pb::Op::kAllGather:
    case pb::Op::kCopyOut:
    case pb::Op::kJoinShards:
    case pb::Op::kLocalGather:
    case pb::Op::kKeepSlice:
      return true;
    default:
      return false;
  }
}

Status CheckGather(Contents& contents, const pb::Op& op) {
  if (contents.plan().units(op.unit()).has_flat()) return CheckFlatGather(contents, op);
  GatherCheck check(contents, op);
  switch (op.kind_case()) {
    case pb::Op::kCopyToDevice:
      return check.CopyToDevice();
    case pb::Op::kCastShard:
      return check.CastShard();
    case pb::Op::kGatherCopyIn:
      return check.CopyIn();
    case pb::Op::kAllGather:
      return check.AllGather();
    case pb::Op::kCopyOut:
      return check.CopyOut();
    case pb::Op::kJoinShards:
      return check.JoinShards();
    case pb::Op::kLocalGather:
      return check.LocalGather();
    case pb::Op::kKeepSlice:
      return check.KeepSlice();
    default:
      return OkStatus();
  }
}

}  // namespace foreshard::plan_check
