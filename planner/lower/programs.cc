#include "planner/lower/programs.h"

#include <algorithm>
#include <string>

namespace foreshard {
namespace {

std::string NameOf(size_t program, size_t last) {
  if (program == 0) return "first";
  if (program >= last) return "steady";
  return program == 1 ? "warmup" : "warmup_" + std::to_string(program);
}

// With `named`, segments are called after the program, which alone uses them.
void AddUses(const SegmentRepeats& uses, bool named, pb::Program& program, pb::Plan& plan) {
  for (const SegmentRepeat& use : uses) {
    pb::SegmentUse& out = *program.add_uses();
    out.set_segment(use.segment);
    out.set_repeat(use.repeat);
    if (!named || CreatesState(plan, use)) continue;
    pb::Segment& segment = *plan.mutable_segments(use.segment);
    segment.set_name(program.name() + "/" + segment.name());
  }
}

}  // namespace

bool CreatesState(const pb::Plan& plan, const SegmentRepeat& use) {
  return plan.segments(use.segment).name() == "optimizer_init";
}

void AddPrograms(const std::vector<SegmentRepeats>& trainings, std::vector<SegmentRepeats> updates,
                 pb::Plan& plan) {
  if (updates.size() == 1) {
    updates.push_back(updates[0]);
    std::erase_if(updates[1], [&](const SegmentRepeat& use) { return CreatesState(plan, use); });
  }
  const size_t last = trainings.size() - 1;
  const bool one_update = std::ranges::all_of(updates, [&](const SegmentRepeats& update) {
    return update.back().segment == updates[0].back().segment;
  });
  for (size_t i = 0; i < updates.size(); ++i) {
    pb::Program& program = *plan.add_programs();
    program.set_name(NameOf(i, last));
    AddUses(trainings[std::min(i, last)], last > 0, program, plan);
    AddUses(updates[i], !one_update, program, plan);
  }
}

}  // namespace foreshard
