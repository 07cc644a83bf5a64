// The programs of a plan, from the segments that each step was lowered to.
#pragma once

#include <vector>

#include "planner/lower/plan_builder.h"

namespace foreshard {

// A segment so many times in a row.
struct SegmentRepeat {
  int segment;
  int repeat;
};
using SegmentRepeats = std::vector<SegmentRepeat>;

// Whether the segment creates the optimizer's state, as the first step alone does.
bool CreatesState(const pb::Plan& plan, const SegmentRepeat& use);

// Adds `first`, `warmup`, ... and `steady`: step i trains with trainings[i] and updates with
// updates[i]. A segment that all programs have keeps its name, others are called after their
// program.
void AddPrograms(const std::vector<SegmentRepeats>& trainings, std::vector<SegmentRepeats> updates,
                 pb::Plan& plan);

}  // namespace foreshard
