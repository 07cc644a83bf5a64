// What each op moves, in elements.
#include <fmt/format.h>

#include "exec/prepare_parts.h"

namespace foreshard::exec {
namespace {

DType Type(pb::DType dtype) { return static_cast<DType>(dtype); }

class WorkBuilder {
 public:
  WorkBuilder(const pb::Plan& plan, const ShardMap& shards, std::span<const int64_t> buffer_bytes,
              const pb::Op& op)
      : plan_(plan), shards_(shards), bytes_(buffer_bytes), op_(op) {}

  StatusOr<Work> Build() {
    switch (op_.kind_case()) {
      case pb::Op::kCompute:
        return Kernel();
      case pb::Op::kCastShard:
        return Concatenated(Type(op_.cast_shard().from()), Type(op_.cast_shard().to()), 0,
                            op_.cast_shard().elems());
      case pb::Op::kGatherCopyIn: {
        const int64_t slice = op_.gather_copy_in().elems();
        const DType dtype = Type(op_.gather_copy_in().dtype());
        return Concatenated(dtype, dtype, slice * shards_.shard_rank(), slice);
      }
      case pb::Op::kLocalGather:
        return Concatenated(Type(op_.local_gather().dtype()), Type(op_.local_gather().dtype()), 0,
                            op_.local_gather().elems());
      case pb::Op::kLocalReduce:
        return Concatenated(Type(op_.local_reduce().dtype()), Type(op_.local_reduce().dtype()), 0,
                            op_.local_reduce().elems());
      case pb::Op::kGradFinalize:
        return Finalize();
      case pb::Op::kCopyOut:
        return CopyOut();
      case pb::Op::kReduceCopyIn:
        return ReduceCopyIn();
      case pb::Op::kAllGather: {
        const pb::AllGather& g = op_.all_gather();
        return Work(GatherSlices{g.group(), g.elems_in(), Type(g.dtype())});
      }
      case pb::Op::kReduceScatter: {
        const pb::ReduceScatter& r = op_.reduce_scatter();
        return Work(ReduceSlices{r.group(), r.elems_out(), Type(r.dtype()),
                                 r.reduction() == pb::ReduceScatter::AVG});
      }
      case pb::Op::kOptimizerInit:
        return Work(ZeroState{});
      case pb::Op::kOptimizerStep: {
        ASSIGN_OR_RETURN(UpdateParameters update, UpdateOf(plan_, shards_, bytes_, op_));
        return Work(std::move(update));
      }
      default:
        return Work();
    }
  }

 private:
  // Every element that an operand or result names lies inside its buffer.
  Status Inside(const pb::TensorType& type, int64_t offset, int buffer, const char* what, int i) {
    const int64_t extent = Extent(type, offset);
    if (extent <= bytes_[buffer]) return OkStatus();
    return InvalidPlan(fmt::format("{} {} reaches byte {} of buffer {}, which holds {}", what, i,
                                   extent, buffer, bytes_[buffer]));
  }

  StatusOr<Work> Kernel() {
    const pb::Kernel& kernel = plan_.kernels(op_.compute().kernel());
    RunKernel run{op_.compute().kernel(), std::vector<int64_t>(op_.in_size(), 0)};
    for (int i = 0; i < op_.in_offsets_size(); ++i) run.in_offsets[i] = op_.in_offsets(i);
    for (int i = 0; i < op_.in_size(); ++i) {
      RETURN_IF_ERROR(Inside(kernel.operands(i), run.in_offsets[i], op_.in(i), "operand", i));
    }
    for (int i = 0; i < op_.out_size(); ++i) {
      RETURN_IF_ERROR(Inside(kernel.results(i), 0, op_.out(i), "result", i));
    }
    return Work(std::move(run));
  }

  // The whole of every buffer of `in`, one behind the other, from element `to` of `out` on.
  StatusOr<Work> Concatenated(DType from, DType dtype, int64_t to, int64_t expected) {
    CopyElements copy{std::vector<DType>(op_.in_size(), from), dtype, {}};
    int64_t moved = 0;
    for (int i = 0; i < op_.in_size(); ++i) {
      const int64_t numel = bytes_[op_.in(i)] / SizeOf(from);
      copy.pieces.push_back({i, 0, 0, to + moved, numel});
      moved += numel;
    }
    if (moved != expected) {
      return InvalidPlan(
          fmt::format("is to move {} elements, its buffers hold {}", expected, moved));
    }
    return Work(std::move(copy));
  }

  StatusOr<Work> Finalize() {
    if (op_.out_size() == 0 || op_.out(0) == op_.in(0)) return Work();
    const DType from = Type(op_.grad_finalize().from());
    return Concatenated(from, Type(op_.grad_finalize().to()), 0, bytes_[op_.in(0)] / SizeOf(from));
  }

  // From [rank][parameter] to one buffer a parameter.
  StatusOr<Work> CopyOut() {
    const pb::Unit& unit = plan_.units(op_.unit());
    const DType dtype = Type(op_.copy_out().dtype());
    CopyElements copy{{dtype}, dtype, {}};
    const int64_t slice = unit.padded_shard_numel();
    if (unit.gathered_numel() * SizeOf(dtype) != bytes_[op_.in(0)]) {
      return InvalidPlan(fmt::format("reads {} elements from buffer {} of {} bytes",
                                     unit.gathered_numel(), op_.in(0), bytes_[op_.in(0)]));
    }
    for (int i = 0; i < unit.parameters_size(); ++i) {
      const int p = unit.parameters(i);
      const int64_t numel = shards_.padded_numel(p);
      for (int rank = 0; rank < shards_.ranks(); ++rank) {
        const int64_t from = rank * slice + plan_.parameters(p).shard_offset();
        copy.pieces.push_back({0, i, from, rank * numel, numel});
      }
    }
    return Work(std::move(copy));
  }

  // From one gradient a parameter to [rank][parameter], the last rows padded with zeros.
  StatusOr<Work> ReduceCopyIn() {
    const pb::ReduceCopyIn& op = op_.reduce_copy_in();
    const std::vector<int> parameters = shards_.Trainable(op_.unit());
    if (static_cast<int>(parameters.size()) != op_.in_size()) {
      return InvalidPlan(fmt::format("reads {} gradients of a unit with {} trainable parameters",
                                     op_.in_size(), parameters.size()));
    }
    CopyElements copy{{}, Type(op.to()), {}};
    const int64_t slice = plan_.units(op_.unit()).grad_padded_shard_numel();
    int64_t offset = 0;
    for (int i = 0; i < op_.in_size(); ++i) {
      const int p = parameters[i];
      copy.from.push_back(Type(op.from(i)));
      if (shards_.numel(p) * SizeOf(copy.from[i]) != bytes_[op_.in(i)]) {
        return InvalidPlan(fmt::format("gradient {} has {} elements, its buffer {} holds {} bytes",
                                       i, shards_.numel(p), op_.in(i), bytes_[op_.in(i)]));
      }
      AddSlices(i, shards_.numel(p), shards_.padded_numel(p), slice, offset, copy);
      offset += shards_.padded_numel(p);
    }
    if (slice * shards_.ranks() * SizeOf(copy.to) != bytes_[op_.out(0)]) {
      return InvalidPlan(fmt::format("fills {} slices of {} elements, buffer {} holds {} bytes",
                                     shards_.ranks(), slice, op_.out(0), bytes_[op_.out(0)]));
    }
    return Work(std::move(copy));
  }

  void AddSlices(int gradient, int64_t numel, int64_t padded, int64_t slice, int64_t offset,
                 CopyElements& copy) const {
    for (int rank = 0; rank < shards_.ranks(); ++rank) {
      const int64_t from = std::min(rank * padded, numel);
      const int64_t real = std::min(padded, numel - from);
      const int64_t to = rank * slice + offset;
      if (real > 0) copy.pieces.push_back({gradient, 0, from, to, real});
      if (real < padded) copy.pieces.push_back({kZeros, 0, 0, to + real, padded - real});
    }
  }

  const pb::Plan& plan_;
  const ShardMap& shards_;
  const std::span<const int64_t> bytes_;
  const pb::Op& op_;
};

}  // namespace

StatusOr<Work> WorkOf(const pb::Plan& plan, const ShardMap& shards,
                      std::span<const int64_t> buffer_bytes, const pb::Op& op) {
  return WorkBuilder(plan, shards, buffer_bytes, op).Build();
}

}  // namespace foreshard::exec
