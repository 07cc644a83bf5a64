// Follows what every buffer holds: rules written, gather, reduce, optimizer and category.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

// What an op has left in a buffer.
enum class Data : uint8_t {
  kNothing,
  kAnything,
  kCastShard,   // of a unit, as the following
  kSlice,       // this rank's part of a gather output
  kGathered,    // the whole of it
  kParameters,  // copied out
  kGradients,   // interleaved for a reduction
  kReduced,
  kFinalized,
};

struct Content {
  Data data = Data::kNothing;
  int32_t unit = -1;
  int32_t parameter = -1;  // of a cast shard: the only one, -1 = all of the unit's
  bool operator==(const Content&) const = default;
};

// Of a buffer since it was allocated.
struct Life {
  pb::Category category = pb::CATEGORY_UNSPECIFIED;
  pb::Phase allocated = pb::PHASE_UNSPECIFIED;
};

template <typename Buffers>
bool Contains(const Buffers& buffers, int32_t buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

class DataWalk {
 public:
  explicit DataWalk(const pb::Plan& plan)
      : plan_(plan),
        contents_(static_cast<size_t>(plan.buffers_size())),
        lives_(contents_.size()),
        reduced_(static_cast<size_t>(plan.units_size())),
        updated_(reduced_.size()) {
    for (const int32_t b : plan.resident()) {
      content(b).data = Data::kAnything;
      category(b) = plan.buffers(b).category();
    }
    for (const pb::Parameter& p : plan.parameters()) {
      if (!p.frozen()) trainable_.push_back(p.sharded_buffer());
    }
  }

  void BeginProgram(int number) {
    number_ = number;
    std::fill(reduced_.begin(), reduced_.end(), false);
  }
  void BeginSegment(int, int) {}
  Status EndProgram(int) { return OkStatus(); }

  Status Visit(int segment, int index) {
    segment_ = segment;
    index_ = index;
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
  Content& content(int32_t b) { return contents_[static_cast<size_t>(b)]; }
  Life& life(int32_t b) { return lives_[static_cast<size_t>(b)]; }
  pb::Category& category(int32_t b) { return life(b).category; }

  Status Broken(std::string_view rule, const std::string& what) const {
    return plan_check::Broken(
        rule, OpPlace(plan_, plan_.segments(segment_), index_),
        fmt::format("{} (program \"{}\")", what, WalkedProgram(plan_, number_).name()));
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
      case pb::Op::kCastShard:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::SHARDED_PARAM));
        return All(op.out(), "writes", pb::CAST);
      case pb::Op::kGatherCopyIn:
      case pb::Op::kAllGather:
        return All(op.out(), "writes", pb::AG_OUTPUT);
      case pb::Op::kCopyOut:
      case pb::Op::kLocalGather:
        return All(op.out(), "writes", pb::UNSHARDED_PARAM);
      case pb::Op::kReduceCopyIn:
        RETURN_IF_ERROR(All(op.in(), "reads", pb::UNSHARDED_GRAD));
        return All(op.out(), "writes", pb::RS_INPUT);
      case pb::Op::kGradFinalize:
        return All(op.out().empty() ? op.in() : op.out(), "leaves", pb::SHARDED_GRAD);
      case pb::Op::kReduceScatter:
      case pb::Op::kLocalReduce:
        if (category(op.out(0)) == pb::SHARDED_GRAD) return OkStatus();
        return All(op.out(), "writes", pb::RS_OUTPUT);
      case pb::Op::kOptimizerInit:
        return All(op.out(), "writes", pb::OPTIMIZER_STATE);
      case pb::Op::kOptimizerStep:
        return All(op.in(), "reads", pb::SHARDED_GRAD);
      case pb::Op::kCompute:
        for (const int32_t b : op.out()) {
          if (category(b) == pb::ACTIVATION || category(b) == pb::UNSHARDED_GRAD) continue;
          const int32_t written[] = {b};
          RETURN_IF_ERROR(All(written, "writes", pb::TEMP));
        }
        return OkStatus();
      default:
        return OkStatus();
    }
  }

  // ---- what each kind needs and leaves

  void Leave(const pb::Op& op, Data data, int32_t unit) {
    for (const int32_t b : op.out()) content(b) = {data, unit};
  }

  Status CheckKind(const pb::Op& op) {
    switch (op.kind_case()) {
      case pb::Op::kCastShard:
        return CheckCast(op);
      case pb::Op::kGatherCopyIn:
        RETURN_IF_ERROR(op.in_size() == 1 && content(op.in(0)).data == Data::kCastShard
                            ? ReadsCast(op)
                            : ReadsShard(op));
        return Unit(op, Data::kSlice);
      case pb::Op::kAllGather:
        RETURN_IF_ERROR(Reads(op, "gather", Data::kSlice, "its unit's shard copied in"));
        return Unit(op, Data::kGathered);
      case pb::Op::kCopyOut:
        RETURN_IF_ERROR(Reads(op, "gather", Data::kGathered, "its unit's gather output"));
        RETURN_IF_ERROR(CheckCopiedOut(op));
        return Unit(op, Data::kParameters);
      case pb::Op::kLocalGather:
        RETURN_IF_ERROR(CheckLocalGather(op));
        return Unit(op, Data::kParameters);
      case pb::Op::kReduceCopyIn:
        RETURN_IF_ERROR(ReadsGradients(op));
        return Unit(op, Data::kGradients);
      case pb::Op::kReduceScatter:
      case pb::Op::kLocalReduce:
        RETURN_IF_ERROR(Reads(op, "reduce", Data::kGradients, "its unit's gradients copied in"));
        RETURN_IF_ERROR(Unit(op, Data::kReduced));
        reduced_[static_cast<size_t>(op.unit())] = true;
        return OkStatus();
      case pb::Op::kGradFinalize:
        RETURN_IF_ERROR(Reads(op, "reduce", Data::kReduced, "its unit's reduced shard"));
        if (op.out().empty()) content(op.in(0)).data = Data::kFinalized;
        return Unit(op, Data::kFinalized);
      case pb::Op::kOptimizerStep:
        return CheckUpdate(op);
      case pb::Op::kCompute:
        RETURN_IF_ERROR(CheckCompute(op));
        [[fallthrough]];
      default:
        Leave(op, Data::kAnything, -1);
        return OkStatus();
    }
  }

  Status Unit(const pb::Op& op, Data data) {
    Leave(op, data, op.unit());
    return OkStatus();
  }

  // Its only operand was last written by the op that goes before it, for the same unit.
  Status Reads(const pb::Op& op, std::string_view rule, Data data, std::string_view what) {
    if (op.in_size() == 1 && content(op.in(0)) == Content{data, op.unit()}) return OkStatus();
    return Broken(
        rule, fmt::format("reads {}, expected {} alone",
                          op.in().empty() ? "nothing" : fmt::format("buffer {}", op.in(0)), what));
  }

  // The parameter of the unit that this is the shard of, or -1.
  int32_t ParameterOf(const pb::Op& op, int32_t buffer) const {
    for (const int32_t p : plan_.units(op.unit()).parameters()) {
      if (plan_.parameters(p).sharded_buffer() == buffer) return p;
    }
    return -1;
  }

  // Of all of the unit, or in a group of one rank of one parameter.
  Status CheckCast(const pb::Op& op) {
    int32_t only = -1;
    if (plan_.mesh().shard_size() == 1 && op.in_size() == 1) only = ParameterOf(op, op.in(0));
    if (only < 0 || plan_.units(op.unit()).parameters_size() == 1) RETURN_IF_ERROR(ReadsShard(op));
    for (const int32_t b : op.out()) content(b) = {Data::kCastShard, op.unit(), only};
    return OkStatus();
  }

  // The cast of a unit's only parameter is the cast of the unit.
  Status ReadsCast(const pb::Op& op) {
    const Content& in = content(op.in(0));
    const bool only = in.unit == op.unit() && plan_.units(op.unit()).parameters_size() == 1;
    return only ? OkStatus() : Reads(op, "gather", Data::kCastShard, "its unit's cast shard");
  }

  Status CheckLocalGather(const pb::Op& op) {
    const Content& in = content(op.in(0));
    const bool cast = in.data == Data::kCastShard && in.unit == op.unit();
    const int32_t parameter = cast ? in.parameter : ParameterOf(op, op.in(0));
    if (parameter >= 0) {
      const int64_t elems = plan_.parameters(parameter).padded_shard_numel();
      if (elems == op.local_gather().elems()) return OkStatus();
      return Broken("collective", fmt::format("moves {} elements, parameter \"{}\" has {}",
                                              op.local_gather().elems(),
                                              plan_.parameters(parameter).path(), elems));
    }
    return Broken("gather", fmt::format("reads buffer {}, neither the shard of a parameter of its "
                                        "unit nor a cast of one",
                                        op.in(0)));
  }

  Status ReadsShard(const pb::Op& op) {
    const auto& parameters = plan_.units(op.unit()).parameters();
    bool same = op.in_size() == parameters.size();
    for (int i = 0; same && i < op.in_size(); ++i) {
      same = op.in(i) == plan_.parameters(parameters.Get(i)).sharded_buffer();
    }
    if (same) return OkStatus();
    return Broken("gather", "does not read its unit's shards, one a parameter in layout order");
  }

  Status ReadsGradients(const pb::Op& op) {
    for (const int32_t b : op.in()) {
      const pb::Buffer& buffer = plan_.buffers(b);
      if (buffer.has_unit() && buffer.unit() == op.unit()) continue;
      return Broken("reduce", fmt::format("reads buffer {}, no gradient of its unit", b));
    }
    return OkStatus();
  }

  // One buffer a parameter, of its padded size in all ranks.
  Status CheckCopiedOut(const pb::Op& op) {
    const auto& parameters = plan_.units(op.unit()).parameters();
    if (op.out_size() != parameters.size()) {
      return Broken("gather", fmt::format("writes {} buffers for {} parameters", op.out_size(),
                                          parameters.size()));
    }
    const int64_t element = ElementBytes(op.copy_out().dtype());
    for (int i = 0; i < op.out_size(); ++i) {
      const int64_t padded = plan_.parameters(parameters.Get(i)).padded_shard_numel();
      // The gathered unit has fewer than 2^62 elements, which may still be too many bytes.
      const int64_t bytes = Multiply(padded * plan_.mesh().shard_size(), element).value_or(-1);
      if (plan_.buffers(op.out(i)).bytes() == bytes) continue;
      return Broken("gather", fmt::format("writes buffer {} of {} bytes, the parameter has {}",
                                          op.out(i), plan_.buffers(op.out(i)).bytes(), bytes));
    }
    return OkStatus();
  }

  Status CheckCompute(const pb::Op& op) {
    for (const int32_t b : op.in()) {
      if (category(b) != pb::UNSHARDED_PARAM) continue;
      const pb::Buffer& buffer = plan_.buffers(b);
      if (buffer.has_unit() && content(b) == Content{Data::kParameters, buffer.unit()}) continue;
      return Broken("gather", fmt::format("reads buffer {}, which no copy_out or local_gather of "
                                          "its unit has written last",
                                          b));
    }
    return OkStatus();
  }

  // Every unit that was reduced hands over one gradient, and all that is trained is written.
  Status CheckUpdate(const pb::Op& op) {
    std::fill(updated_.begin(), updated_.end(), false);
    for (const int32_t b : op.in()) {
      const Content c = content(b);
      if (c.data != Data::kReduced && c.data != Data::kFinalized) {
        return Broken("optimizer", fmt::format("reads buffer {}, no reduced gradient", b));
      }
      if (updated_[static_cast<size_t>(c.unit)]) {
        return Broken("optimizer", fmt::format("reads a second gradient of unit \"{}\"",
                                               plan_.units(c.unit).name()));
      }
      updated_[static_cast<size_t>(c.unit)] = true;
    }
    for (int u = 0; u < plan_.units_size(); ++u) {
      if (reduced_[static_cast<size_t>(u)] && !updated_[static_cast<size_t>(u)]) {
        return Broken("optimizer", fmt::format("does not read the gradient of unit \"{}\"",
                                               plan_.units(u).name()));
      }
    }
    return CheckUpdated(op);
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
  int number_ = 0;
  int segment_ = 0;
  int index_ = 0;
  std::vector<Content> contents_;
  std::vector<Life> lives_;
  std::vector<int32_t> trainable_;  // shards in the plan's order
  std::vector<bool> reduced_;       // units, in this program
  std::vector<bool> updated_;       // scratch
};

}  // namespace

Status CheckData(const pb::Plan& plan) {
  DataWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
