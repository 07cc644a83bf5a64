// How large every buffer is, by what is put into it.
#include <fmt/format.h>

#include <algorithm>

#include "exec/prepare_parts.h"
#include "proto/oplib/oplib.h"
#include "proto/oplib/optimizer_state.h"
#include "proto/oplib/rules.h"
#include "proto/oplib/workspace.h"
#include "proto/run/program.h"

namespace foreshard::exec {
namespace {

constexpr int64_t kUnknown = -1;

int64_t Size(pb::DType dtype) { return SizeOf(static_cast<DType>(dtype)); }

class Sizes {
 public:
  Sizes(const pb::Plan& plan, const ShardMap& shards)
      : plan_(plan), shards_(shards), bytes_(plan.buffers_size(), kUnknown) {}

  StatusOr<std::vector<int64_t>> Derive() {
    RETURN_IF_ERROR(Residents());
    for (const pb::Segment& segment : plan_.segments()) {
      for (int i = 0; i < segment.ops_size(); ++i) {
        RETURN_IF_ERROR(Written(segment, i).At(PlaceOf(plan_, segment, i)));
      }
    }
    for (const pb::Segment& segment : plan_.segments()) {
      for (int i = 0; i < segment.ops_size(); ++i) {
        RETURN_IF_ERROR(AllocatedAreKnown(segment.ops(i)).At(PlaceOf(plan_, segment, i)));
      }
    }
    return std::move(bytes_);
  }

 private:
  // What fills a buffer, exactly.
  Status Fills(int buffer, int64_t bytes) {
    if (bytes_[buffer] == kUnknown) bytes_[buffer] = bytes;
    if (bytes_[buffer] == bytes) return OkStatus();
    return InvalidPlan(
        fmt::format("fills buffer {} with {} bytes, while another op or table says {}", buffer,
                    bytes, bytes_[buffer]));
  }

  Status Residents() {
    for (int p = 0; p < plan_.parameters_size(); ++p) {
      RETURN_IF_ERROR(Fills(plan_.parameters(p).sharded_buffer(),
                            shards_.buffer_numel(p) * SizeOf(shards_.dtype(p)))
                          .At("parameters"));
    }
    const auto tensor = [](const auto& row) {
      pb::TensorType type;
      *type.mutable_shape() = row.shape();
      return oplib::NumelOf(type) * Size(row.dtype());
    };
    for (const pb::Input& input : plan_.inputs()) {
      RETURN_IF_ERROR(Fills(input.buffer(), tensor(input)).At("inputs"));
    }
    for (const pb::ModuleBuffer& row : plan_.module_buffers()) {
      RETURN_IF_ERROR(Fills(row.buffer(), tensor(row)).At("module_buffers"));
    }
    for (const pb::Workspace& row : plan_.workspaces()) {
      const auto bytes = oplib::WorkspaceBytes(row.library(), row.arch());
      if (!bytes) {
        return InvalidPlan(
            fmt::format("workspaces: nobody knows what {} takes on {}", row.library(), row.arch()));
      }
      RETURN_IF_ERROR(Fills(row.buffer(), *bytes).At("workspaces"));
    }
    for (const int buffer : plan_.resident()) {
      if (bytes_[buffer] != kUnknown) continue;
      return InvalidPlan(
          fmt::format("resident buffer {} is in no table that says what it holds", buffer));
    }
    return OkStatus();
  }

  // A kernel's result may be a part of its buffer; the largest counts.
  Status KernelResults(const pb::Op& op) {
    const pb::Kernel& kernel = plan_.kernels(op.compute().kernel());
    for (int i = 0; i < op.out_size(); ++i) {
      int64_t& bytes = bytes_[op.out(i)];
      bytes = std::max(bytes, Extent(kernel.results(i), 0));
    }
    for (const int buffer : ScratchOf(op)) {
      RETURN_IF_ERROR(Fills(buffer, oplib::Find(kernel.name())->scratch(kernel)));
    }
    return OkStatus();
  }

  Status StateOf(const pb::Op& op) {
    const pb::OptimizerKind kind = op.optimizer_init().kind();
    const bool counts = kind != pb::SGD;
    const int moments = counts ? 2 : 1;
    const int each = moments + (counts ? 1 : 0);
    const std::vector<ShardMap::Tensor> tensors = shards_.UpdatedTensors();
    if (op.out_size() != each * static_cast<int>(tensors.size())) {
      return InvalidPlan(
          fmt::format("creates {} buffers of state for {} parameters, expected {} each",
                      op.out_size(), tensors.size(), each));
    }
    int next = 0;
    for (const ShardMap::Tensor& tensor : tensors) {
      const int64_t moment = oplib::MomentBytes(
          kind, tensor.numel, Size(oplib::MomentDType(plan_, op.optimizer_init().dtype())));
      const int64_t count = tensor.has_state ? SizeOf(DType::kFp32) : 0;
      if (counts) RETURN_IF_ERROR(Fills(op.out(next++), count));
      for (int i = 0; i < moments; ++i) RETURN_IF_ERROR(Fills(op.out(next++), moment));
    }
    return OkStatus();
  }

  // Of a loop what the worst parameter needs, else one tensor for each trainable parameter.
  Status ScratchOfUpdate(const pb::Op& op) {
    const std::vector<int> scratch = ScratchOf(op);
    if (scratch.empty()) return OkStatus();
    const pb::OptimizerStep& step = op.optimizer_step();
    const std::vector<ShardMap::Tensor> tensors = shards_.UpdatedTensors();
    const bool loops = step.impl() == pb::LOOP;
    const size_t expected = loops ? 1 : tensors.size();
    if (scratch.size() != expected) {
      return InvalidPlan(
          fmt::format("has {} buffers of scratch, expected {}", scratch.size(), expected));
    }
    int64_t most = 0;
    int64_t before = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t numel = tensors[i].numel;
      const int64_t element = SizeOf(shards_.dtype(tensors[i].parameter));
      const int64_t moment = Size(oplib::MomentDType(plan_, step.dtype()));
      most = std::max(most, oplib::LoopTemporaryBytes(step.kind(), numel, before, element, moment));
      before = numel;
      if (loops) continue;
      RETURN_IF_ERROR(Fills(scratch[i], numel * (step.kind() == pb::SGD ? element : moment)));
    }
    return loops ? Fills(scratch[0], most) : OkStatus();
  }

  // A norm for each trainable parameter, then vectors of all norms.
  Status Norms(const pb::Op& op) {
    const auto tensors = static_cast<int>(shards_.Tensors().size());
    const int64_t element = Size(plan_.decisions().original_dtype());
    if (op.out_size() <= tensors) {
      return InvalidPlan(fmt::format("writes {} norms and no squares", op.out_size()));
    }
    for (int i = 0; i < op.out_size(); ++i) {
      RETURN_IF_ERROR(Fills(op.out(i), element * (i < tensors ? 1 : tensors)));
    }
    return OkStatus();
  }

  // On its way to the norm of all: vectors of all norms, or in a group of one rank that norm.
  Status ScratchOfScale(const pb::Op& op) {
    const auto tensors = static_cast<int64_t>(shards_.Tensors().size());
    const int64_t element = Size(plan_.decisions().original_dtype());
    for (const int buffer : ScratchOf(op)) {
      RETURN_IF_ERROR(Fills(buffer, element * (shards_.ranks() > 1 ? tensors : 1)));
    }
    return OkStatus();
  }

  Status CopiedOut(const pb::Op& op) {
    const auto& parameters = plan_.units(op.unit()).parameters();
    for (int i = 0; i < op.out_size(); ++i) {
      const int64_t numel = shards_.padded_numel(parameters[i]) * shards_.ranks();
      RETURN_IF_ERROR(Fills(op.out(i), numel * Size(op.copy_out().dtype())));
    }
    return OkStatus();
  }

  Status CopiedIn(const pb::Segment& segment, int index) {
    const pb::Op& op = segment.ops(index);
    ASSIGN_OR_RETURN(const int group, GroupOfGather(plan_, segment, index));
    const int64_t numel = op.gather_copy_in().elems() * plan_.groups(group).size();
    return Fills(op.out(0), numel * Size(op.gather_copy_in().dtype()));
  }

  // A group-size-th of a parameter.
  Status Kept(const pb::Op& op) {
    if (op.out().empty()) return OkStatus();
    return Fills(op.out(0), op.keep_slice().elems() * Size(op.keep_slice().dtype()));
  }

  Status Joined(const pb::Op& op) {
    int next = 0;
    for (const int p : plan_.units(op.unit()).parameters()) {
      if (plan_.parameters(p).shard_dim() == 0 || next == op.out_size()) continue;
      const int64_t bytes = shards_.numel(p) * Size(op.join_shards().dtype());
      RETURN_IF_ERROR(Fills(op.out(next++), bytes));
    }
    return OkStatus();
  }

  Status Finalized(const pb::Op& op) {
    if (op.out_size() == 0 || op.out(0) == op.in(0)) return OkStatus();
    if (op.grad_finalize().accumulate()) return OkStatus();
    const int64_t numel = bytes_[op.in(0)] / Size(op.grad_finalize().from());
    return Fills(op.out(0), numel * Size(op.grad_finalize().to()));
  }

  // The scratch is what stands where there is no gradient.
  Status Concatenated(const pb::Op& op) {
    const pb::ConcatGradients& join = op.concat_gradients();
    int64_t missing = join.elems();
    for (const int p : join.parameters()) missing -= shards_.numel(p);
    for (const int buffer : ScratchOf(op)) {
      RETURN_IF_ERROR(Fills(buffer, missing * Size(join.dtype())));
    }
    return Fills(op.out(0), join.elems() * Size(join.dtype()));
  }

  Status CopiedToHost(const pb::Op& op) {
    const int p = op.copy_to_host().parameter();
    const bool is_flat = shards_.IsFlat(op.unit());
    const int64_t numel = is_flat ? shards_.buffer_numel(p) : shards_.local_numel(p);
    return Fills(op.out(0), numel * Size(op.copy_to_host().dtype()));
  }

  // What an op fills on its way from shards to parameters, or nothing.
  Status Gathered(const pb::Segment& segment, int index) {
    const pb::Op& op = segment.ops(index);
    const auto one = [&](int64_t elems, pb::DType dtype) {
      return Fills(op.out(0), elems * Size(dtype));
    };
    switch (op.kind_case()) {
      case pb::Op::kCopyToDevice:
        return one(op.copy_to_device().elems(), op.copy_to_device().dtype());
      case pb::Op::kCastShard:
        return one(op.cast_shard().elems(), op.cast_shard().to());
      case pb::Op::kGatherCopyIn:
        return CopiedIn(segment, index);
      case pb::Op::kAllGather:
        return one(op.all_gather().elems_out(), op.all_gather().dtype());
      case pb::Op::kCopyOut:
        return CopiedOut(op);
      case pb::Op::kJoinShards:
        return Joined(op);
      case pb::Op::kKeepSlice:
        return Kept(op);
      case pb::Op::kLocalGather:
        return one(op.local_gather().elems(), op.local_gather().dtype());
      default:
        return OkStatus();
    }
  }

  Status Written(const pb::Segment& segment, int index) {
    const pb::Op& op = segment.ops(index);
    const auto one = [&](int64_t elems, pb::DType dtype) {
      return Fills(op.out(0), elems * Size(dtype));
    };
    switch (op.kind_case()) {
      case pb::Op::kCompute:
        return KernelResults(op);
      case pb::Op::kSplitGradient:
        return one(op.split_gradient().elems(), op.split_gradient().dtype());
      case pb::Op::kConcatGradients:
        return Concatenated(op);
      case pb::Op::kReduceCopyIn:
        return one(op.reduce_copy_in().elems_out(), op.reduce_copy_in().to());
      case pb::Op::kReduceScatter:
        return one(op.reduce_scatter().elems_out(), op.reduce_scatter().dtype());
      case pb::Op::kLocalReduce:
        return one(op.local_reduce().elems(), op.local_reduce().dtype());
      case pb::Op::kAllReduce:
        if (plan_.buffers(op.out(0)).category() != pb::BUCKET) return OkStatus();
        return one(op.all_reduce().elems(), op.all_reduce().dtype());
      case pb::Op::kGradFinalize:
        return Finalized(op);
      case pb::Op::kCopyToHost:
        return CopiedToHost(op);
      case pb::Op::kOptimizerInit:
        return StateOf(op);
      case pb::Op::kOptimizerStep:
        return ScratchOfUpdate(op);
      case pb::Op::kClipNorms:
        return Norms(op);
      case pb::Op::kClipScale:
        return ScratchOfScale(op);
      default:
        return Gathered(segment, index);
    }
  }

  Status AllocatedAreKnown(const pb::Op& op) const {
    for (const int buffer : op.allocs()) {
      if (bytes_[buffer] != kUnknown) continue;
      return InvalidPlan(fmt::format("allocates buffer {}, but no op says what it holds", buffer));
    }
    return OkStatus();
  }

  const pb::Plan& plan_;
  const ShardMap& shards_;
  std::vector<int64_t> bytes_;
};

}  // namespace

std::vector<int> ScratchOf(const pb::Op& op) {
  std::vector<int> scratch;
  const auto has = [](const auto& list, int b) { return std::ranges::find(list, b) != list.end(); };
  for (const int b : op.allocs()) {
    if (has(op.frees(), b) && !has(op.in(), b) && !has(op.out(), b)) scratch.push_back(b);
  }
  return scratch;
}

int64_t Extent(const pb::TensorType& type, int64_t offset) {
  int64_t last = offset;
  int64_t contiguous = 1;
  for (int i = type.shape_size() - 1; i >= 0; --i) {
    if (type.shape(i) == 0) return 0;
    const int64_t stride = type.strides_size() > 0 ? type.strides(i) : contiguous;
    last += (type.shape(i) - 1) * stride;
    contiguous *= type.shape(i);
  }
  return (last + 1) * Size(type.dtype());
}

StatusOr<std::vector<int64_t>> DeriveBufferBytes(const pb::Plan& plan, const ShardMap& shards) {
  return Sizes(plan, shards).Derive();
}

}  // namespace foreshard::exec
