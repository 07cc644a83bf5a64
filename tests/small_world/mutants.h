// Plans with one thing wrong, or merely different: what plan_check is held against.
#pragma once

#include <string_view>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard {

enum class Mutation {
  kDropWait,
  kDropStreamWait,
  kDropGather,  // cast, copy-in and all-gather, or cast and local copy
  kDropCopyOut,
  kDropReshard,
  kDropReduceCopyIn,
  kDropReduceScatter,  // or local copy
  kDropConcat,         // of a flat parameter's gradients
  kDropDivide,         // likewise
  kDropRandom,
  kDropRecord,
  kDropEventWait,
  kOtherRecord,  // of the same event, one earlier
  kOtherEvent,
  kFreeEarlier,
  kFreeLater,
  kAllocateLater,
  kSwap,
  kShrinkBuffer,
  kGrowBuffer,
  kChangeCategory,
  kForgetStream,  // that the allocator is told of
};
inline constexpr int kMutations = 22;

std::string_view Name(Mutation mutation);

// Where a mutation applies: an op of a segment, one of its lists' entries; or a buffer.
struct Site {
  int segment = 0;
  int op = 0;
  int index = 0;
};

std::vector<Site> Sites(const pb::Plan& plan, Mutation mutation);

// REQUIRES: `site` is one of Sites(plan, mutation).
pb::Plan Mutant(const pb::Plan& plan, Mutation mutation, const Site& site);

}  // namespace foreshard
