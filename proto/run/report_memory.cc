// The memory half of the report.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/run/report_builder.h"

namespace foreshard::run {
namespace {

// Names of the ledger's terms, in the order they are listed.
const std::vector<std::string>& LedgerNames() {
  static const std::vector<std::string> names = {
      "sharded parameters",
      "gradients",
      "optimizer state",
      "gathered parameters",
      "gradient and reduce buffers",
      "activations",
      "recomputed activations",
      "activation gradients and temporaries",
      "logits and loss",
      "inputs and model buffers",
      "library workspace",
  };
  return names;
}

// Position in LedgerNames.
int LedgerTermOf(int memory_class) {
  switch (CategoryOf(memory_class)) {
    case pb::SHARDED_PARAM:
      return 0;
    case pb::SHARDED_GRAD:
      return 1;
    case pb::OPTIMIZER_STATE:
      return 2;
    case pb::UNSHARDED_PARAM:
    case pb::AG_OUTPUT:
    case pb::CAST:
    case pb::POST_FORWARD_SHARD:
      return 3;
    case pb::UNSHARDED_GRAD:
    case pb::PARAM_GRAD:
    case pb::BUCKET:
    case pb::RS_INPUT:
    case pb::RS_OUTPUT:
      return 4;
    case pb::ACTIVATION:
      return IsLogits(memory_class) ? 8 : 5;
    case pb::RECOMPUTE:
      return IsLogits(memory_class) ? 8 : 6;
    case pb::TEMP:
      return IsLogits(memory_class) ? 8 : 7;
    case pb::INPUT:
    case pb::MODULE_BUFFER:
      return 9;
    case pb::WORKSPACE:
      return 10;
    default:
      break;
  }
  CHECK(false) << "no ledger term for category " << CategoryOf(memory_class);
  return 0;
}

void AddLedger(const Watermark& mark, pb::Peak& peak) {
  std::vector<int64_t> terms(LedgerNames().size(), 0);
  for (int c = 0; c < kMemoryClasses; ++c) {
    if (mark.by_class[c].count() != 0) terms[LedgerTermOf(c)] += mark.by_class[c].count();
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i] == 0) continue;
    pb::LedgerTerm& term = *peak.add_ledger();
    term.set_name(LedgerNames()[i]);
    term.set_bytes(terms[i]);
  }
}

using Categories = google::protobuf::RepeatedPtrField<pb::CategoryBytes>;

// Categories that hold anything, in their order; `managed_only` leaves the others out.
void FillCategories(const BytesByClass& by_class, bool managed_only, Categories& out) {
  for (int category = 0; category <= pb::Category_MAX; ++category) {
    const auto name = static_cast<pb::Category>(category);
    if (managed_only && !IsManaged(name)) continue;
    const Bytes bytes = by_class[MemoryClass(name, false)] + by_class[MemoryClass(name, true)];
    if (bytes.count() == 0) continue;
    pb::CategoryBytes& entry = *out.Add();
    entry.set_category(name);
    entry.set_bytes(bytes.count());
  }
}

}  // namespace

void ReportBuilder::AddMemory(const MemoryRecorder& memory) {
  AddFit(memory.replay().peak().bytes);
  AddPeak(memory);
  for (size_t i = 0; i < memory.phase_ids().size(); ++i) {
    AddPhase(memory.replay().phases()[i], memory.phase_ids()[i], memory);
  }
  AddPersistent(memory);
  const Watermark& host = memory.host_replay().peak();
  if (host.bytes.count() == 0) return;
  report_.mutable_host()->set_peak_bytes(host.bytes.count());
  FillCategories(host.by_class, false, *report_.mutable_host()->mutable_peak_by_category());
}

void ReportBuilder::AddFit(Bytes peak) {
  pb::Fit& fit = *report_.mutable_fit();
  fit.set_capacity_bytes(hardware_.memory.count());
  fit.set_reserve_bytes(hardware_.reserve.count());
  fit.set_peak_bytes(peak.count());
  fit.set_headroom_bytes((hardware_.memory - hardware_.reserve - peak).count());
  fit.set_fits(fit.headroom_bytes() >= 0);
}

// What the first phase of a steady step, which the last program is, finds.
void ReportBuilder::AddPersistent(const MemoryRecorder& memory) {
  const ProgramId steady{plan_.programs_size() - 1};
  for (size_t i = 0; i < memory.phase_ids().size(); ++i) {
    if (memory.phase_ids()[i].program != steady) continue;
    report_.mutable_fit()->set_persistent_bytes(memory.replay().phases()[i].start.count());
    return;
  }
}

void ReportBuilder::AddPeak(const MemoryRecorder& memory) {
  const Watermark& mark = memory.replay().peak();
  pb::Peak& peak = *report_.mutable_peak();
  peak.set_bytes(mark.bytes.count());
  if (mark.op != kNoOp) *peak.mutable_at() = Refer(memory.OpAt(mark.op));
  AddLedger(mark, peak);
  std::map<std::pair<int, std::string>, pb::LiveGroup> groups;
  for (int32_t index : memory.replay().AliveAtPeak()) {
    const pb::Buffer& buffer = plan_.buffers(index);
    const pb::Category category = CategoryOf(memory.replay().ClassAtPeak(index));
    const std::string owner = OwnerOf(buffer, category);
    pb::LiveGroup& group = groups[{category, owner}];
    group.set_category(category);
    group.set_owner(owner);
    group.set_count(group.count() + 1);
    group.set_bytes(group.bytes() + program_.buffer_bytes[index].count());
  }
  std::vector<pb::LiveGroup> sorted;
  for (const auto& [key, group] : groups) sorted.push_back(group);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  for (pb::LiveGroup& group : sorted) *peak.add_live() = std::move(group);
}

// Blocks of one class are alike, so what they hold is shown together.
std::string ReportBuilder::OwnerOf(const pb::Buffer& buffer, pb::Category category) const {
  if (IsManaged(category)) {
    return buffer.has_unit() ? plan_.units(buffer.unit()).name() : "";
  }
  return buffer.has_module() ? plan_.modules(buffer.module()).class_() : "";
}

void ReportBuilder::AddPhase(const PhaseWatermarks& phase, const PhaseId& id,
                             const MemoryRecorder& memory) {
  pb::PhaseMemory& out = *report_.add_phases();
  out.set_program(plan_.programs(static_cast<int>(id.program)).name());
  out.set_phase(id.phase);
  out.set_micro_batch(id.micro_batch);
  out.set_start_bytes(phase.start.count());
  out.set_end_bytes(phase.end.count());
  out.set_peak_bytes(phase.peak.bytes.count());
  if (phase.peak.op != kNoOp) *out.mutable_peak_at() = Refer(memory.OpAt(phase.peak.op));
  FillCategories(phase.peak.by_class, false, *out.mutable_peak_by_category());
  FillCategories(phase.end_by_class, false, *out.mutable_end_by_category());
  out.set_managed_peak_bytes(phase.managed_peak.bytes.count());
  if (phase.managed_peak.op != kNoOp) {
    *out.mutable_managed_peak_at() = Refer(memory.OpAt(phase.managed_peak.op));
  }
  FillCategories(phase.managed_peak.by_class, true, *out.mutable_managed_peak_by_category());
}

void ReportBuilder::AddRank(int rank, const MemoryRecorder& memory, int count) {
  const Watermark& mark = memory.replay().peak();
  pb::RankMemory found;
  found.set_peak_bytes(mark.bytes.count());
  if (mark.op != kNoOp) *found.mutable_peak_at() = Refer(memory.OpAt(mark.op));
  FillCategories(mark.by_class, false, *found.mutable_peak_by_category());
  if (!memory.replay().phases().empty()) {
    FillCategories(memory.replay().phases().back().end_by_class, false,
                   *found.mutable_end_by_category());
  }
  for (pb::RankMemory& known : *report_.mutable_ranks()) {
    found.set_rank(known.rank());
    found.set_ranks(known.ranks());
    if (found.SerializeAsString() != known.SerializeAsString()) continue;
    known.set_ranks(known.ranks() + count);
    return;
  }
  found.set_rank(rank);
  found.set_ranks(count);
  *report_.add_ranks() = std::move(found);
}

}  // namespace foreshard::run
