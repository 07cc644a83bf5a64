// Writes a plan op by op: streams and the events between them, buffers and their lives, kernels
// stored once. It knows the format's bookkeeping and nothing of what is lowered.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "planner/eager/dims.h"
#include "proto/base/dtype.h"
#include "proto/plan.pb.h"

namespace foreshard {

using BufferId = int;
using StreamId = int;
inline constexpr StreamId kHost = -1;

// An op of the segment being written, to wait for.
using OpId = int;
inline constexpr OpId kNoOp = -1;

struct TensorSpec {
  DType dtype = DType::kFp32;
  Dims shape;
  Dims strides;  // as many as the shape has
};

// What a kernel is told besides its tensors.
struct ScalarAttr {
  double value;
};
struct EpsAttr {
  double value;
};
struct DimAttr {
  int64_t dim;
};
struct SliceAttr {
  int64_t dim, start, length;
};
struct AttentionAttr {
  bool causal;
  double scale;
  double dropout;
};
using KernelAttr =
    std::variant<std::monostate, ScalarAttr, EpsAttr, DimAttr, SliceAttr, AttentionAttr>;

class PlanBuilder {
 public:
  explicit PlanBuilder(pb::Plan& plan) : plan_(plan) {}

  pb::Plan& plan() { return plan_; }

  // Labels put on every op and buffer until changed; -1 = none.
  void SetPhase(pb::Phase phase) { phase_ = phase; }
  void SetMicroBatch(int micro_batch) { micro_batch_ = micro_batch; }
  void SetUnit(int unit) { unit_ = unit, module_ = -1; }
  void SetModule(int module) {
    module_ = module;
    unit_ = module >= 0 ? module_units_[module] : -1;
  }
  int module() const { return module_; }
  // Per module, the unit whose parameters it runs with.
  void SetModuleUnits(std::vector<int> units) { module_units_ = std::move(units); }

  StreamId AddStream(std::string_view name, pb::Stream::Role role);
  void BeginSegment(std::string_view name);
  // The segment runs again: what it allocates and frees comes and goes as when it was written.
  void Replay(int segment);

  // A buffer that the next op allocates. Zero bytes are allowed: nothing is then allocated at all.
  BufferId Allocate(int64_t bytes, pb::Category category, StreamId stream);
  // The next op allocates a buffer again that was freed: one tensor, whose memory comes and goes.
  void Revive(BufferId b);
  // A buffer that lives from before the first program on.
  BufferId AddResident(int64_t bytes, pb::Category category, StreamId stream);
  pb::Buffer& buffer(BufferId b) { return *plan_.mutable_buffers(b); }
  // Frees after the op issued last.
  void Free(BufferId b);
  // From the op issued last on, the buffer counts as `category`.
  void Settle(BufferId b, pb::Category category);
  // True when the buffer was allocated and not freed since.
  bool IsAlive(BufferId b) const { return alive_[b]; }

  // `stream` waits for `op` before whatever is issued on it next.
  void WaitBeforeNext(StreamId stream, OpId op);

  // Issues an op on `stream` (kHost: none) and returns it for its kind and buffers to be set.
  pb::Op& Issue(StreamId stream, std::initializer_list<BufferId> in,
                std::initializer_list<BufferId> out);
  pb::Op& Issue(StreamId stream, std::span<const BufferId> in, std::span<const BufferId> out);
  // Notes which version of each operand the op reads, where one was written more than once.
  void AddVersions(pb::Op& op) const;
  // The op issued last draws these random numbers.
  void SetRandom(int random) {
    segment_->mutable_ops(segment_->ops_size() - 1)->set_random(random);
  }
  OpId last_op() const { return static_cast<OpId>(segment_->ops_size()) - 1; }

  // The index of the kernel with these types in the plan's table, added at first use.
  int Kernel(std::string_view name, std::span<const TensorSpec> operands,
             std::span<const TensorSpec> results, const KernelAttr& attr);

 private:
  int AddKernel(std::string_view name, std::span<const TensorSpec> operands,
                std::span<const TensorSpec> results, const KernelAttr& attr);

  pb::Plan& plan_;
  pb::Segment* segment_ = nullptr;
  pb::Phase phase_ = pb::PHASE_UNSPECIFIED;
  int micro_batch_ = 0;
  int unit_ = -1;
  int module_ = -1;
  std::vector<int> module_units_;
  std::vector<BufferId> pending_allocs_;
  std::vector<bool> alive_;
  std::vector<bool> resident_;
  std::vector<int> writes_;  // since the allocation; what a segment finds written counts once
  std::vector<std::vector<OpId>> pending_waits_;  // per stream
  std::unordered_map<std::string, int> kernels_;
  std::string key_;  // scratch
};

pb::DType ToProto(DType t);

}  // namespace foreshard
