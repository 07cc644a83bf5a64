// Ops that sharding libraries issue alike: between shards and what is gathered, and between
// gradients and what the optimizer reads.
#pragma once

#include <span>

#include "planner/lower/plan_builder.h"

namespace foreshard {

// ---- gather

// A copy of `elems` elements of the shards in another dtype (CAST).
BufferId CastShards(PlanBuilder& builder, std::span<const BufferId> shards, int64_t elems,
                    DType from, DType to, StreamId stream);

// A copy on the device of a shard that is the host's (CAST).
BufferId CopyShardToDevice(PlanBuilder& builder, BufferId shard, int64_t elems, DType dtype,
                           StreamId stream);

// ---- reduce

// What autograd has made, or `summed` of several, counts as a gradient of the unit from now on.
void CountAsGradient(PlanBuilder& builder, BufferId gradient, int unit, bool summed);

// Sums of low precision are divided by about half of `factor` before and by the rest after: the
// first of the two, a power of two that divides it.
double DivisorBeforeSum(double factor);

void DivideInPlace(PlanBuilder& builder, BufferId buffer, int64_t elems, DType dtype,
                   double divisor, StreamId stream);

void AllReduceInPlace(PlanBuilder& builder, BufferId buffer, int64_t elems, DType dtype, int group,
                      pb::ReduceScatter::Reduction reduction, StreamId stream);

// What was reduced becomes the gradient: a cast, or where both are one buffer nothing but a name.
void FinalizeGradient(PlanBuilder& builder, BufferId reduced, BufferId gradient, DType from,
                      DType to, StreamId stream);

// `part` is added to the gradient of earlier micro-batches.
void AddToGradient(PlanBuilder& builder, BufferId part, BufferId gradient, DType dtype,
                   StreamId stream);

}  // namespace foreshard
