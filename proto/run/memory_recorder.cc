#include "proto/run/memory_recorder.h"

#include <array>
#include <utility>

namespace foreshard::run {
namespace {

static_assert(2 * (pb::Category_MAX + 1) <= kMemoryClasses);

// Of what lives on the host, or of what does not.
MemoryReplay MakeReplay(const pb::Plan& plan, const Program& program, bool host) {
  std::vector<ReplayBuffer> buffers;
  for (int i = 0; i < plan.buffers_size(); ++i) {
    const pb::Buffer& buffer = plan.buffers(i);
    buffers.push_back({program.buffer_bytes[i], MemoryClass(buffer.category(), buffer.logits())});
  }
  std::array<bool, kMemoryClasses> managed{};
  for (int c = 0; c < kMemoryClasses; ++c) managed[c] = IsManaged(CategoryOf(c));
  std::vector<int32_t> resident;
  for (const int32_t b : plan.resident()) {
    if (plan.buffers(b).host() == host) resident.push_back(b);
  }
  return MemoryReplay(std::move(buffers), managed, resident);
}

}  // namespace

int MemoryClass(pb::Category category, bool logits) { return 2 * category + (logits ? 1 : 0); }
pb::Category CategoryOf(int memory_class) { return static_cast<pb::Category>(memory_class / 2); }
bool IsLogits(int memory_class) { return memory_class % 2 == 1; }

bool IsManaged(pb::Category category) {
  switch (category) {
    case pb::SHARDED_PARAM:
    case pb::CAST:
    case pb::AG_OUTPUT:
    case pb::UNSHARDED_PARAM:
    case pb::UNSHARDED_GRAD:
    case pb::PARAM_GRAD:
    case pb::BUCKET:
    case pb::RS_INPUT:
    case pb::RS_OUTPUT:
    case pb::SHARDED_GRAD:
    case pb::OPTIMIZER_STATE:
    case pb::POST_FORWARD_SHARD:
      return true;
    default:
      return false;
  }
}

MemoryRecorder::MemoryRecorder(const pb::Plan& plan, const Program& program, int32_t steps)
    : plan_(plan),
      program_(program),
      recorded_steps_(steps),
      replay_(MakeReplay(plan, program, false)),
      host_replay_(MakeReplay(plan, program, true)) {
  for (int s = 0; s < plan.segments_size(); ++s) {
    const pb::Segment& segment = plan.segments(s);
    for (int i = 0; i < segment.ops_size(); ++i) {
      for (const pb::Settle& settle : segment.ops(i).settles()) {
        settlements_.push_back({SegmentId(s), i, settle.buffer(), settle.category()});
      }
    }
  }
}

void MemoryRecorder::OpBegun(const OpInstance& op, SimTime) {
  if (op.step >= recorded_steps_) return;
  const OpRecord& record = program_.op(op.op);
  const PhaseId id{op.step, op.program, static_cast<pb::Phase>(record.phase),
                   record.micro_batch + op.repetition};
  if (!phase_ids_.empty() && phase_ids_.back() == id) return;
  replay_.BeginPhase(static_cast<int64_t>(phase_ids_.size()));
  phase_ids_.push_back(id);
}

MemoryReplay& MemoryRecorder::ReplayOf(int32_t buffer) {
  return plan_.buffers(buffer).host() ? host_replay_ : replay_;
}

int64_t MemoryRecorder::Remember(const OpInstance& op) {
  if (ops_.empty() || ops_.back().sequence != op.sequence) ops_.push_back(op);
  return static_cast<int64_t>(ops_.size()) - 1;
}

void MemoryRecorder::OpIssued(const OpInstance& op, SimTime) {
  if (op.step >= recorded_steps_) return;
  for (const Settlement& s : settlements_) {
    if (s.segment != op.segment || s.position != op.position) continue;
    ReplayOf(s.buffer).Settle(s.buffer, MemoryClass(s.category, false), Remember(op));
  }
}

void MemoryRecorder::BufferAllocated(BufferId buffer, const OpInstance& op, SimTime) {
  if (op.step >= recorded_steps_) return;
  const auto b = static_cast<int32_t>(buffer);
  ReplayOf(b).Allocate(b, Remember(op));
}

void MemoryRecorder::BufferFreed(BufferId buffer, const OpInstance& op, SimTime) {
  if (op.step >= recorded_steps_) return;
  const auto b = static_cast<int32_t>(buffer);
  ReplayOf(b).Free(b);
}

// Closes the last phase; where the host is already in a later one, that one is closed again.
void MemoryRecorder::StepEnded(int32_t, SimTime) { replay_.Finish(); }

}  // namespace foreshard::run
