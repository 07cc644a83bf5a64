#include "planner/lower/shard_ops.h"

#include <cmath>

namespace foreshard {

BufferId CastShards(PlanBuilder& builder, std::span<const BufferId> shards, int64_t elems,
                    DType from, DType to, StreamId stream) {
  const BufferId cast = builder.Allocate(elems * SizeOf(to), pb::CAST, stream);
  pb::CastShard& op = *builder.Issue(stream, shards, std::span(&cast, 1)).mutable_cast_shard();
  op.set_elems(elems);
  op.set_from(ToProto(from));
  op.set_to(ToProto(to));
  return cast;
}

BufferId CopyShardToDevice(PlanBuilder& builder, BufferId shard, int64_t elems, DType dtype,
                           StreamId stream) {
  const BufferId copy = builder.Allocate(elems * SizeOf(dtype), pb::CAST, stream);
  pb::CopyToDevice& op = *builder.Issue(stream, {shard}, {copy}).mutable_copy_to_device();
  op.set_elems(elems);
  op.set_dtype(ToProto(dtype));
  return copy;
}

void CountAsGradient(PlanBuilder& builder, BufferId gradient, int unit, bool summed) {
  pb::Buffer& buffer = builder.buffer(gradient);
  buffer.set_logits(false);
  buffer.set_unit(unit);
  if (summed) {
    builder.Settle(gradient, pb::UNSHARDED_GRAD);
  } else {
    buffer.set_category(pb::UNSHARDED_GRAD);
  }
}

double DivisorBeforeSum(double factor) {
  double power = 1;
  while (std::fmod(factor, power) == 0 && factor / power > power) power *= 2;
  return power;
}

void DivideInPlace(PlanBuilder& builder, BufferId buffer, int64_t elems, DType dtype,
                   double divisor, StreamId stream) {
  pb::Divide& op = *builder.Issue(stream, {buffer}, {buffer}).mutable_divide();
  op.set_divisor(divisor);
  op.set_elems(elems);
  op.set_dtype(ToProto(dtype));
}

void AllReduceInPlace(PlanBuilder& builder, BufferId buffer, int64_t elems, DType dtype, int group,
                      pb::ReduceScatter::Reduction reduction, StreamId stream) {
  pb::AllReduce& op = *builder.Issue(stream, {buffer}, {buffer}).mutable_all_reduce();
  op.set_group(group);
  op.set_elems(elems);
  op.set_dtype(ToProto(dtype));
  op.set_reduction(reduction);
}

void FinalizeGradient(PlanBuilder& builder, BufferId reduced, BufferId gradient, DType from,
                      DType to, StreamId stream) {
  pb::GradFinalize& op = *builder.Issue(stream, {reduced}, {gradient}).mutable_grad_finalize();
  op.set_from(ToProto(from));
  op.set_to(ToProto(to));
}

void AddToGradient(PlanBuilder& builder, BufferId part, BufferId gradient, DType dtype,
                   StreamId stream) {
  pb::GradFinalize& op =
      *builder.Issue(stream, {part, gradient}, {gradient}).mutable_grad_finalize();
  op.set_from(ToProto(dtype));
  op.set_to(ToProto(dtype));
  op.set_accumulate(true);
}

}  // namespace foreshard
