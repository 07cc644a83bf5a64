#include "proto/plan_check_contents.h"

#include <fmt/format.h>

#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {

Contents::Contents(const pb::Plan& plan)
    : plan_(plan), contents_(static_cast<size_t>(plan.buffers_size())), lives_(contents_.size()) {
  for (const int32_t b : plan.resident()) {
    (*this)[b].data = Data::kAnything;
    category(b) = plan.buffers(b).category();
  }
}

Status Contents::Broken(std::string_view rule, const std::string& what) const {
  return plan_check::Broken(
      rule, OpPlace(plan_, plan_.segments(segment_), op_),
      fmt::format("{} (program \"{}\")", what, WalkedProgram(plan_, program_).name()));
}

Status Contents::Leave(const pb::Op& op, const Content& content) {
  for (const int32_t b : op.out()) (*this)[b] = content;
  return OkStatus();
}

Status Contents::Reads(const pb::Op& op, std::string_view rule, Data data,
                       std::string_view what) const {
  if (op.in_size() == 1 && Holds(op.in(0), data, op.unit())) return OkStatus();
  return Broken(
      rule, fmt::format("reads {}, expected {} alone",
                        op.in().empty() ? "nothing" : fmt::format("buffer {}", op.in(0)), what));
}

}  // namespace foreshard::plan_check
