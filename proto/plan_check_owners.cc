// Rule owner: what one rank updates for all others.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "proto/plan_check_op.h"

namespace foreshard::plan_check {
namespace {

// A buffer that one rank has and all others have nothing of.
bool IsOnlyOn(int owner, int64_t bytes, const pb::Buffer& buffer, int ranks) {
  if (bytes == 0) return buffer.bytes() == 0 && buffer.others().empty();
  if (owner > 0) {
    return buffer.bytes() == 0 && buffer.others_size() == 1 && buffer.others(0).rank() == owner &&
           buffer.others(0).bytes() == bytes;
  }
  const bool none =
      std::ranges::all_of(buffer.others(), [](const auto& other) { return other.bytes() == 0; });
  return buffer.bytes() == bytes && none && buffer.others_size() == ranks - 1;
}

}  // namespace

const google::protobuf::RepeatedField<int32_t>& OwnersIn(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) {
      if (op.has_optimizer_step()) return op.optimizer_step().owners();
    }
  }
  return pb::OptimizerStep::default_instance().owners();
}

Status CheckOwners(const OpContext& c) {
  const auto& owners = c.op().optimizer_step().owners();
  const auto& others = OwnersIn(c.plan);
  if (!std::equal(owners.begin(), owners.end(), others.begin(), others.end())) {
    return c.Broken("owner", "divides the parameters otherwise than another update");
  }
  if (owners.empty()) return OkStatus();
  const int ranks = c.plan.mesh().world_size();
  const bool known = std::ranges::all_of(owners, [&](int32_t o) { return InTable(o, ranks); });
  const auto tensors = static_cast<int>(OptimizerTensors(c.plan).size());
  if (known && owners.size() == tensors && c.plan.mesh().shard_size() == 1) return OkStatus();
  return c.Broken("owner", fmt::format("does not name one of {} ranks without shards for each of "
                                       "{} trainable parameters",
                                       ranks, tensors));
}

Status CheckStateOfOwner(const OpContext& c, int32_t buffer, int owner, int64_t bytes) {
  if (IsOnlyOn(owner, bytes, c.buffer(buffer), c.plan.mesh().world_size())) return OkStatus();
  return c.Broken("owner", fmt::format("buffer {} is not {} bytes on rank {}, which updates the "
                                       "parameter, and nothing on others",
                                       buffer, bytes, owner));
}

int64_t UpdatedElems(const OpContext& c) {
  const auto& owners = c.op().optimizer_step().owners();
  std::vector<int64_t> elems(static_cast<size_t>(c.plan.mesh().world_size()), 0);
  int i = 0;
  for (const OptimizerTensor& t : OptimizerTensors(c.plan)) {
    elems[static_cast<size_t>(owners.empty() ? 0 : owners[i++])] += t.numel;
  }
  return std::ranges::max(elems);
}

}  // namespace foreshard::plan_check
