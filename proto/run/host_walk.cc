#include "proto/run/host_walk.h"

namespace foreshard::run {
namespace {

void WalkOp(const Program& program, const OpInstance& op, Listener& listener) {
  const OpRecord& record = program.op(op.op);
  listener.OpBegun(op, SimTime(0));
  for (BufferId buffer : program.Buffers(record.allocs)) {
    listener.BufferAllocated(buffer, op, SimTime(0));
  }
  listener.OpIssued(op, SimTime(0));
  for (BufferId buffer : program.Buffers(record.frees)) {
    listener.BufferFreed(buffer, op, SimTime(0));
  }
}

}  // namespace

void WalkHost(const Program& program, std::span<const ProgramId> steps, Listener& listener) {
  OpInstance op;
  for (size_t s = 0; s < steps.size(); ++s) {
    op.step = static_cast<int32_t>(s);
    op.program = steps[s];
    listener.StepBegun(op.step, SimTime(0));
    for (const UseRecord& use : program.programs[Index(steps[s])]) {
      const SegmentRecord& segment = program.segments[Index(use.segment)];
      op.segment = use.segment;
      for (op.repetition = 0; op.repetition < use.repeat; ++op.repetition) {
        for (op.position = 0; op.position < segment.size; ++op.position, ++op.sequence) {
          op.op = OpId{static_cast<int32_t>(segment.first) + op.position};
          WalkOp(program, op, listener);
        }
      }
    }
    listener.StepEnded(op.step, SimTime(0));
  }
}

std::vector<ProgramId> ProgramsOnce(const Program& program) {
  std::vector<ProgramId> steps;
  for (size_t i = 0; i < program.programs.size(); ++i) {
    steps.push_back(ProgramId{static_cast<int32_t>(i)});
  }
  return steps;
}

}  // namespace foreshard::run
