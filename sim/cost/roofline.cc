#include "sim/cost/roofline.h"

#include <algorithm>

#include "proto/base/check.h"
#include "proto/base/dtype.h"
#include "proto/op_facts.h"
#include "proto/oplib/oplib.h"

namespace foreshard::sim {
namespace {

// Passes over one tensor of the trainable elements that a step of the optimizer makes, and kernels.
struct Update {
  double fused_passes = 0;  // one kernel that reads the gradient and updates everything else
  double foreach_passes = 0;
  int foreach_kernels = 0;
};

// Foreach, operation by operation; a loop makes the same passes, with these kernels for every
// parameter. AdamW: first moment 3, second moment 2 + 3, square root 2,
// division 2, epsilon 2, update 4. SGD: momentum 2 + 3, update 3. Weight decay updates the
// parameters of AdamW, and makes a sum of the gradients of SGD.
Update UpdateOf(const pb::OptimizerStep& step) {
  const bool decays = step.weight_decay() != 0;
  if (step.kind() != pb::SGD) return {7, decays ? 20.0 : 18.0, decays ? 8 : 7};
  Update update = step.momentum() == 0 ? Update{3, 3, 1} : Update{5, 8, 3};
  if (!decays) return update;
  return {update.fused_passes, update.foreach_passes + 3, update.foreach_kernels + 1};
}

// Kernels that the host launches one by one for every parameter, where it goes over them.
int KernelsOfLoop(const pb::Op& op) {
  if (op.has_clip_norms()) return op.clip_norms().loop() ? 1 : 0;
  if (op.has_clip_scale()) return op.clip_scale().loop() ? 1 : 0;
  if (!op.has_optimizer_step() || op.optimizer_step().impl() != pb::LOOP) return 0;
  const pb::OptimizerStep& step = op.optimizer_step();
  return step.kind() == pb::ADAMW_8BIT ? 1 : UpdateOf(step).foreach_kernels;  // compiled
}

Bytes SizeOfElements(int64_t elems, pb::DType dtype) {
  return Bytes(elems * SizeOf(static_cast<DType>(dtype)));
}

// Stand-ins that the library does not know say themselves whether they are matrix products.
oplib::CostClass ClassOf(const pb::Kernel& kernel) {
  if (const oplib::KernelInfo* info = oplib::Find(kernel.name())) return info->cost;
  return kernel.matmul() ? oplib::CostClass::kMatmul : oplib::CostClass::kMemory;
}

bool IsFloat(pb::DType dtype) {
  return dtype == pb::FP32 || dtype == pb::BF16 || dtype == pb::FP16;
}

// The type that the matrix units multiply: that of the first floating-point operand.
pb::DType ArithmeticType(const pb::Kernel& kernel) {
  for (const pb::TensorType& type : kernel.operands()) {
    if (IsFloat(type.dtype())) return type.dtype();
  }
  return pb::FP32;
}

// A gradient that already has its type needs no kernel.
bool IsOnlyAName(const pb::Op& op) {
  return op.has_grad_finalize() && op.grad_finalize().from() == op.grad_finalize().to() &&
         !op.grad_finalize().accumulate();
}

}  // namespace

FlopsPerSecond PeakFlops(const pb::Gpu& gpu, pb::DType dtype) {
  CHECK(IsFloat(dtype)) << "no peak for element type " << dtype;
  return FlopsPerSecond(dtype == pb::FP32 ? gpu.fp32_flops_per_second()
                                          : gpu.bf16_flops_per_second());
}

RooflineModel::RooflineModel(const pb::Plan& plan, const pb::Cluster& cluster)
    : plan_(plan), cluster_(cluster) {
  rings_.reserve(plan.groups_size());
  for (const pb::Group& group : plan.groups()) {
    rings_.push_back(RingOf(group, plan.mesh().world_size(), cluster));
  }
  kernel_times_.reserve(plan.kernels_size());
  for (const pb::Parameter& p : plan.parameters()) trainable_ += p.frozen() ? 0 : 1;
  for (const pb::Kernel& kernel : plan.kernels()) kernel_times_.push_back(KernelTime(kernel));
}

OpCost RooflineModel::Price(const pb::Op& op) const {
  if (!op.has_stream() || IsOnlyAName(op)) return {};
  const pb::Host& host = cluster_.host();
  if (plan_.streams(op.stream()).role() == pb::Stream::HOST) {
    return {Seconds(host.launch_seconds()), HostTime(op)};
  }
  if (const int kernels = KernelsOfLoop(op) * trainable_; kernels > 1) {
    const double more = kernels - 1;
    return {Seconds(kernels * host.launch_seconds()),
            DeviceTime(op) + more * Seconds(host.kernel_seconds())};
  }
  const double issue = CollectiveGroup(op) >= 0 ? host.collective_seconds() : host.launch_seconds();
  return {Seconds(issue), DeviceTime(op)};
}

Seconds RooflineModel::KernelTime(const pb::Kernel& kernel) const {
  const pb::Gpu& gpu = cluster_.gpu();
  const pb::Efficiency& efficiency = gpu.efficiency();
  // Kernels that are no matrix products run on the ordinary fp32 units.
  FlopsPerSecond rate(gpu.fp32_flops_per_second());
  switch (ClassOf(kernel)) {
    case oplib::CostClass::kMatmul:
      rate = PeakFlops(gpu, ArithmeticType(kernel)) * efficiency.matmul();
      break;
    case oplib::CostClass::kAttention:
      rate = PeakFlops(gpu, ArithmeticType(kernel)) * efficiency.attention();
      break;
    case oplib::CostClass::kMemory:
      break;
  }
  const Seconds arithmetic = Flops(kernel.flops()) / rate;
  return std::max(arithmetic + Seconds(cluster_.host().kernel_seconds()),
                  CopyTime(Bytes(kernel.bytes())));
}

Seconds RooflineModel::CopyTime(Bytes moved) const {
  const pb::Gpu& gpu = cluster_.gpu();
  const BytesPerSecond rate(gpu.memory_bytes_per_second() * gpu.efficiency().memory());
  return moved / rate + Seconds(cluster_.host().kernel_seconds());
}

Seconds RooflineModel::LinkTime(Bytes moved) const {
  const pb::Host& host = cluster_.host();
  return moved / BytesPerSecond(host.copy_bytes_per_second()) + Seconds(host.kernel_seconds());
}

// The processors are as fast as their memory.
Seconds RooflineModel::HostTime(const pb::Op& op) const {
  if (op.has_stream_wait()) return Seconds(0);
  const Bytes moved = op.has_optimizer_step() ? UpdateBytes(op) : Total(op.in()) + Total(op.out());
  return moved / BytesPerSecond(cluster_.host().memory_bytes_per_second());
}

Seconds RooflineModel::CollectiveTime(int group, Bytes full) const {
  return RingTime(rings_[group], full);
}

Seconds RooflineModel::DeviceTime(const pb::Op& op) const {
  switch (op.kind_case()) {
    case pb::Op::kCompute:
      return kernel_times_[op.compute().kernel()];
    case pb::Op::kCastShard: {
      const pb::CastShard& cast = op.cast_shard();
      return CopyTime(SizeOfElements(cast.elems(), cast.from()) +
                      SizeOfElements(cast.elems(), cast.to()));
    }
    case pb::Op::kGatherCopyIn:
      return CopyTime(2 * SizeOfElements(op.gather_copy_in().elems(), op.gather_copy_in().dtype()));
    case pb::Op::kAllGather:
      return CollectiveTime(op.all_gather().group(),
                            SizeOfElements(op.all_gather().elems_out(), op.all_gather().dtype()));
    case pb::Op::kCopyOut:
      return CopyTime(2 * SizeOfElements(op.copy_out().elems(), op.copy_out().dtype()));
    case pb::Op::kLocalGather:
      return CopyTime(2 * SizeOfElements(op.local_gather().elems(), op.local_gather().dtype()));
    case pb::Op::kLocalReduce:
      return CopyTime(2 * SizeOfElements(op.local_reduce().elems(), op.local_reduce().dtype()));
    case pb::Op::kReduceCopyIn: {
      const pb::ReduceCopyIn& copy = op.reduce_copy_in();
      return CopyTime(Total(op.in()) + SizeOfElements(copy.elems_out(), copy.to()));
    }
    case pb::Op::kReduceScatter:
      return CollectiveTime(
          op.reduce_scatter().group(),
          SizeOfElements(op.reduce_scatter().elems_in(), op.reduce_scatter().dtype()));
    case pb::Op::kAllReduce:
      return AllReduceTime(rings_[op.all_reduce().group()],
                           SizeOfElements(op.all_reduce().elems(), op.all_reduce().dtype()));
    case pb::Op::kBroadcast:
      return BroadcastTime(rings_[op.broadcast().group()],
                           SizeOfElements(op.broadcast().elems(), op.broadcast().dtype()));
    case pb::Op::kBucketCopyIn:
      return CopyTime(2 * SizeOfElements(op.bucket_copy_in().elems(), op.bucket_copy_in().dtype()));
    case pb::Op::kBucketCopyOut:
      return CopyTime(2 *
                      SizeOfElements(op.bucket_copy_out().elems(), op.bucket_copy_out().dtype()));
    case pb::Op::kCopyToDevice:
      return LinkTime(SizeOfElements(op.copy_to_device().elems(), op.copy_to_device().dtype()));
    case pb::Op::kCopyToHost:
      return LinkTime(SizeOfElements(op.copy_to_host().elems(), op.copy_to_host().dtype()));
    case pb::Op::kDivide:
    case pb::Op::kAddReduced:
    case pb::Op::kKeepSlice:
    case pb::Op::kJoinShards:
    case pb::Op::kSplitGradient:
    case pb::Op::kClipNorms:
    case pb::Op::kClipScale:
    case pb::Op::kConcatGradients:
    case pb::Op::kGradFinalize:
      return CopyTime(Total(op.in()) + Total(op.out()));
    case pb::Op::kOptimizerInit:
      return CopyTime(Total(op.out()));
    case pb::Op::kOptimizerStep:
      return OptimizerTime(op);
    case pb::Op::kStreamWait:
    case pb::Op::kReshard:
    case pb::Op::kRelease:
    case pb::Op::kZeroGrad:
      return Seconds(0);
    case pb::Op::KIND_NOT_SET:
      break;
  }
  CHECK(false) << "op of unknown kind " << op.kind_case();
  return Seconds(0);
}

// Gradients are read; shards and state are read and written, operation by operation if not fused.
Bytes RooflineModel::UpdateBytes(const pb::Op& op) const {
  const Bytes fused = Total(op.in()) + 2 * Total(op.out());
  const pb::OptimizerStep& step = op.optimizer_step();
  if (step.impl() == pb::FUSED || step.kind() == pb::ADAMW_8BIT) return fused;
  const Update update = UpdateOf(step);
  const double moved =
      static_cast<double>(fused.count()) * (update.foreach_passes / update.fused_passes);
  return Bytes(static_cast<int64_t>(moved));
}

Seconds RooflineModel::OptimizerTime(const pb::Op& op) const {
  const pb::OptimizerStep& step = op.optimizer_step();
  const int more = step.impl() == pb::FOREACH ? UpdateOf(step).foreach_kernels - 1 : 0;
  return CopyTime(UpdateBytes(op)) + more * Seconds(cluster_.host().kernel_seconds());
}

Bytes RooflineModel::Total(const google::protobuf::RepeatedField<int32_t>& buffers) const {
  Bytes total;
  for (int32_t buffer : buffers) total += Bytes(plan_.buffers(buffer).bytes());
  return total;
}

}  // namespace foreshard::sim
