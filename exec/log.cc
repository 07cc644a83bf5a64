#include "exec/log.h"

#include <algorithm>
#include <tuple>

namespace foreshard::exec {
namespace {

enum class Kind { kStepBegun, kBegun, kIssued, kStarted, kEnded, kStepEnded };

// Something that happened. Of events at one time, ops come in issue order.
struct Moment {
  int64_t time = 0;
  int64_t sequence = 0;
  Kind kind = Kind::kBegun;
  int step = 0;  // renumbered
  const OpLog* op = nullptr;
  auto Order() const { return std::tuple(time, sequence, kind); }
};

std::vector<Moment> MomentsOf(std::span<const StepLog* const> steps, const run::Program& program) {
  std::vector<Moment> moments;
  int64_t ended = 0;
  for (size_t s = 0; s < steps.size(); ++s) {
    const int step = static_cast<int>(s);
    const int64_t first = steps[s]->ops.empty() ? 0 : steps[s]->ops.front().op.sequence;
    moments.push_back({steps[s]->begun, first, Kind::kStepBegun, step, nullptr});
    ended = std::max(ended, steps[s]->begun);
    int64_t last = first;
    for (const OpLog& op : steps[s]->ops) {
      last = op.op.sequence;
      moments.push_back({op.begun, last, Kind::kBegun, step, &op});
      moments.push_back({op.issued, last, Kind::kIssued, step, &op});
      ended = std::max(ended, op.issued);
      if (program.op(op.op.op).stream == run::kNoStream) continue;
      moments.push_back({op.span.start, last, Kind::kStarted, step, &op});
      moments.push_back({op.span.end, last, Kind::kEnded, step, &op});
      ended = std::max(ended, op.span.end);
    }
    moments.push_back({ended, last, Kind::kStepEnded, step, nullptr});
  }
  std::ranges::stable_sort(moments, {}, &Moment::Order);
  return moments;
}

void TellOne(const Moment& moment, SimTime now, const run::Program& program, run::Listener& to) {
  if (moment.op == nullptr) {
    if (moment.kind == Kind::kStepBegun) to.StepBegun(moment.step, now);
    if (moment.kind == Kind::kStepEnded) to.StepEnded(moment.step, now);
    return;
  }
  run::OpInstance op = moment.op->op;
  op.step = moment.step;
  const run::OpRecord& record = program.op(op.op);
  switch (moment.kind) {
    case Kind::kBegun:
      to.OpBegun(op, now);
      for (run::BufferId b : program.Buffers(record.allocs)) to.BufferAllocated(b, op, now);
      return;
    case Kind::kIssued:
      to.OpIssued(op, now);
      for (run::BufferId b : program.Buffers(record.frees)) to.BufferFreed(b, op, now);
      return;
    case Kind::kStarted:
      return to.OpStarted(op, now);
    case Kind::kEnded:
      return to.OpEnded(op, now);
    default:
      return;
  }
}

}  // namespace

void RankLog::BeginStep(int step, int program, int64_t now) {
  keeps_ = step < programs_ || step >= steps_ - 2;
  if (!keeps_) return;
  StepLog& log = kept_.emplace_back();
  log.step = step;
  log.program = program;
  log.begun = now;
}

OpLog* RankLog::AddOp(const run::OpInstance& op, int64_t now) {
  if (!keeps_) return nullptr;
  OpLog& log = kept_.back().ops.emplace_back();
  log.op = op;
  log.begun = now;
  return &log;
}

void Tell(std::span<const StepLog* const> steps, const run::Program& program,
          std::span<run::Listener* const> listeners) {
  if (steps.empty()) return;
  const int64_t zero = steps[0]->begun;
  for (const Moment& moment : MomentsOf(steps, program)) {
    const SimTime now = std::chrono::nanoseconds(moment.time - zero);
    for (run::Listener* listener : listeners) TellOne(moment, now, program, *listener);
  }
}

}  // namespace foreshard::exec
