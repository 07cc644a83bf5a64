// What lives on the host and who may use it: rule host.
#include <fmt/format.h>

#include <algorithm>

#include "proto/plan_check_op.h"

namespace foreshard::plan_check {
namespace {

// All of these are on the side where `host` says.
template <typename Buffers>
Status AllOn(const OpContext& c, std::string_view verb, const Buffers& buffers, bool host) {
  for (const int32_t b : buffers) {
    if (c.buffer(b).host() == host) continue;
    return c.Broken("host", fmt::format("{} buffer {}, which is {}", verb, b,
                                        host ? "not on the host" : "on the host"));
  }
  return OkStatus();
}

bool Contains(const google::protobuf::RepeatedField<int32_t>& buffers, int32_t buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

// Scratch is used where the op runs, as what it reads and writes.
Status ScratchOn(const OpContext& c, bool host) {
  for (const int32_t b : c.op().allocs()) {
    if (c.buffer(b).host() == host || !Contains(c.op().frees(), b)) continue;
    if (Contains(c.op().in(), b) || Contains(c.op().out(), b)) continue;
    return c.Broken("host", fmt::format("has buffer {} as scratch, which is {}", b,
                                        host ? "not on the host" : "on the host"));
  }
  return OkStatus();
}

}  // namespace

Status CheckHost(const OpContext& c) {
  const pb::Op& op = c.op();
  if (!op.has_stream()) return OkStatus();
  const bool on_host = c.plan.streams(op.stream()).role() == pb::Stream::HOST;
  const bool copies = op.has_copy_to_device() || op.has_copy_to_host();
  if (copies && on_host) return c.Broken("host", "moves to or from the device on a host's stream");
  const bool reads_host = on_host || op.has_copy_to_device();
  const bool writes_host = on_host || op.has_copy_to_host();
  RETURN_IF_ERROR(AllOn(c, "reads", op.in(), reads_host));
  RETURN_IF_ERROR(AllOn(c, "writes", op.out(), writes_host));
  return ScratchOn(c, on_host);
}

}  // namespace foreshard::plan_check
