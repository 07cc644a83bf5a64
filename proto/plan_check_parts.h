// The parts of CheckPlan, in the order in which they run: each may rely on what those before it
// have established. Internal to proto/plan_check*.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::plan_check {

// What happened before is kept as one number a stream for each buffer and op.
inline constexpr int kMaxStreams = 64;

// Establishes that every index in the tables points into its table, that the mesh and the
// programs are well formed, and that sizes are not negative and sum below 2^62.
Status CheckTables(const pb::Plan& plan);

// Rule layout. REQUIRES: CheckTables.
Status CheckLayout(const pb::Plan& plan);

// Rule kernel, for the table of kernels; views of a type stay below 2^62 elements.
Status CheckKernels(const pb::Plan& plan);

// Everything that can be said of an op without walking a program: indices, stream, waits, operand
// counts, views, collective sizes. REQUIRES: CheckTables, CheckKernels.
Status CheckOps(const pb::Plan& plan);

// Rules initial, module_buffer, workspace, loss and random. REQUIRES: CheckOps.
Status CheckValues(const pb::Plan& plan);

// Rules lifetime (of the host), settle, steady (what is alive) and reduce. REQUIRES: CheckOps.
Status CheckLifetimes(const pb::Plan& plan);

// Rules category, written, gather, reduce (its parts) and optimizer. REQUIRES: CheckLifetimes.
Status CheckData(const pb::Plan& plan);

// Rules bucket, broadcast and owner. REQUIRES: CheckLifetimes.
Status CheckReplicas(const pb::Plan& plan);

// Rule event. REQUIRES: CheckOps.
Status CheckEvents(const pb::Plan& plan);

// Rules order, lifetime (across streams) and steady (queues). REQUIRES: CheckLifetimes,
// CheckEvents.
Status CheckOrder(const pb::Plan& plan);

// "rule NAME: PLACE: WHAT" as an error.
Status Broken(std::string_view rule, std::string_view place, std::string_view what);

// "copy_out"
std::string OpKind(const pb::Op& op);

// `segment "step" op 17 (copy_out, layers.3)`. Indices may be wrong; then names are left out.
std::string OpPlace(const pb::Plan& plan, const pb::Segment& segment, int op);

// Bytes of one element; 0 for values that are no dtype.
int64_t ElementBytes(pb::DType dtype);

// The product of two numbers, unless one is negative or it is 2^62 or more.
std::optional<int64_t> Multiply(int64_t a, int64_t b);

// Product of the sizes, 1 for a scalar. Nothing for negative sizes or 2^62 or more.
template <typename Shape>
std::optional<int64_t> Numel(const Shape& shape) {
  std::optional<int64_t> numel = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (size > 0 && numel) numel = Multiply(*numel, size);
  }
  return empty ? 0 : numel;
}

// Ranks that update each trainable parameter for all others, as the plan's updates say; empty =
// none does.
const google::protobuf::RepeatedField<int32_t>& OwnersIn(const pb::Plan& plan);

inline bool InTable(int64_t index, int size) { return index >= 0 && index < size; }

}  // namespace foreshard::plan_check
