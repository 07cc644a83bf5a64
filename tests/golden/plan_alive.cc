#include "tests/golden/plan_alive.h"

#include <algorithm>
#include <cctype>

#include "proto/run/program.h"
#include "tests/golden/plan_events.h"
#include "tests/golden/trace_text.h"

namespace foreshard::golden {

std::string CategoryText(pb::Category category) {
  std::string name = pb::Category_Name(category);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

AliveWalk::AliveWalk(const pb::Plan& plan, const PlanRecordOptions& options)
    : plan_(plan), by_holder_(!options.whole_model), micro_batch_(plan.buffers_size(), 0) {
  for (const pb::Buffer& buffer : plan.buffers()) {
    bytes_.push_back(run::BytesOn(buffer, options.rank).count());
    categories_.push_back(buffer.category());
  }
  for (const int32_t buffer : plan.resident()) Count(buffer, 1);
}

void AliveWalk::Allocate(const pb::Op& op, int micro_batch) {
  for (const int32_t buffer : op.allocs()) {
    categories_[buffer] = plan_.buffers(buffer).category();
    micro_batch_[buffer] = micro_batch;
    Count(buffer, 1);
  }
}

void AliveWalk::Free(const pb::Op& op, int micro_batch) {
  for (const pb::Settle& settle : op.settles()) {
    Count(settle.buffer(), -1);
    categories_[settle.buffer()] = settle.category();
    Count(settle.buffer(), 1);
  }
  for (const int32_t buffer : op.frees()) {
    if (!FreesLate(op, buffer, micro_batch)) Count(buffer, -1);
  }
}

void AliveWalk::FreeLate(const pb::Op& op, int micro_batch) {
  for (const int32_t buffer : op.frees()) {
    if (FreesLate(op, buffer, micro_batch)) Count(buffer, -1);
  }
}

bool AliveWalk::FreesLate(const pb::Op& op, int32_t buffer, int micro_batch) const {
  const bool flat = op.has_unit() && plan_.units(op.unit()).has_flat();
  if (flat && op.has_grad_finalize()) return categories_[buffer] == pb::UNSHARDED_GRAD;
  return categories_[buffer] == pb::RS_OUTPUT && micro_batch_[buffer] != micro_batch;
}

void AliveWalk::Count(int32_t buffer, int sign) {
  const std::string category = CategoryText(categories_[buffer]);
  const int64_t bytes = sign * bytes_[buffer];
  if (IsRecorded(category)) now_.total += bytes;
  if (!by_holder_ || !IsManaged(category)) return;
  const pb::Buffer& row = plan_.buffers(buffer);
  const std::string unit = row.has_unit() ? plan_.units(row.unit()).name() : "";
  const std::string holder = HolderText(category, unit);
  if ((now_.alive[holder] += bytes) == 0) now_.alive.erase(holder);
}

}  // namespace foreshard::golden
