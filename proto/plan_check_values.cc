// What a plan says for whoever runs it: rules initial, module_buffer, workspace, loss and random.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/oplib/oplib.h"
#include "proto/oplib/workspace.h"
#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {
namespace {

Status CheckInitials(const pb::Plan& plan) {
  for (const pb::Parameter& p : plan.parameters()) {
    const pb::Initial& initial = p.initial();
    const std::string place = fmt::format("parameter \"{}\"", p.path());
    if (initial.distribution_case() == pb::Initial::DISTRIBUTION_NOT_SET) {
      return Broken("initial", place, "has no initial values");
    }
    const double width = initial.has_normal() ? initial.normal() : initial.uniform();
    if (!std::isfinite(width) || width < 0 || !std::isfinite(initial.constant())) {
      return Broken("initial", place, "its initial values are not finite, or their width negative");
    }
  }
  return OkStatus();
}

std::vector<bool> Residents(const pb::Plan& plan) {
  std::vector<bool> resident(static_cast<size_t>(plan.buffers_size()), false);
  for (const int32_t b : plan.resident()) resident[static_cast<size_t>(b)] = true;
  return resident;
}

// The row's buffer exists, is resident, of this category and in no other row.
Status CheckOwned(const pb::Plan& plan, std::string_view rule, const std::string& place,
                  int32_t buffer, pb::Category category, const std::vector<bool>& resident,
                  std::set<int32_t>& seen) {
  if (!InTable(buffer, plan.buffers_size())) {
    return Broken("index", place, fmt::format("buffer {} of {}", buffer, plan.buffers_size()));
  }
  if (!seen.insert(buffer).second) {
    return Broken(rule, place, fmt::format("buffer {} is another row's already", buffer));
  }
  const pb::Category found = plan.buffers(buffer).category();
  if (resident[static_cast<size_t>(buffer)] && found == category) return OkStatus();
  return Broken(rule, place,
                fmt::format("buffer {} of category {} is not resident and {}", buffer,
                            pb::Category_Name(found), pb::Category_Name(category)));
}

// One fp32 frequency for each pair of a head's elements.
Status CheckRotary(const pb::ModuleBuffer& row, const std::string& place) {
  const pb::RotaryFrequencies& r = row.rotary();
  const double low = r.low_frequency_factor();
  const double high = r.high_frequency_factor();
  const bool scaled = r.factor() != 0;
  const bool right =
      row.dtype() == pb::FP32 && row.shape_size() == 1 && r.theta() > 0 &&
      std::isfinite(r.theta()) && r.factor() >= 0 && std::isfinite(r.factor()) &&
      (!scaled || (low > 0 && high > low && std::isfinite(high) && r.original_positions() > 0));
  if (right) return OkStatus();
  return Broken("module_buffer", place, "its shape, dtype or numbers are not those of frequencies");
}

Status CheckModuleBuffers(const pb::Plan& plan) {
  const std::vector<bool> resident = Residents(plan);
  std::set<int32_t> seen;
  std::vector<bool> given(resident.size(), false);
  for (const pb::ModuleBuffer& row : plan.module_buffers()) {
    const std::string place = fmt::format("module buffer \"{}\"", row.path());
    RETURN_IF_ERROR(
        CheckOwned(plan, "module_buffer", place, row.buffer(), pb::MODULE_BUFFER, resident, seen));
    const std::optional<int64_t> numel = Numel(row.shape());
    const std::optional<int64_t> bytes =
        numel ? Multiply(*numel, ElementBytes(row.dtype())) : std::nullopt;
    if (ElementBytes(row.dtype()) == 0 || !bytes || *bytes != plan.buffers(row.buffer()).bytes()) {
      return Broken("module_buffer", place,
                    fmt::format("its dtype and shape do not fill the {} bytes of buffer {}",
                                plan.buffers(row.buffer()).bytes(), row.buffer()));
    }
    if (row.has_rotary()) RETURN_IF_ERROR(CheckRotary(row, place));
    given[static_cast<size_t>(row.buffer())] = row.has_rotary();
  }
  for (const pb::Segment& segment : plan.segments()) {
    for (int i = 0; i < segment.ops_size(); ++i) {
      if (!segment.ops(i).has_compute()) continue;
      for (const int32_t b : segment.ops(i).in()) {
        const bool none = plan.buffers(b).category() == pb::MODULE_BUFFER;
        if (!none || given[static_cast<size_t>(b)]) continue;
        return Broken("module_buffer", OpPlace(plan, segment, i),
                      fmt::format("reads buffer {}, whose values no row gives", b));
      }
    }
  }
  return OkStatus();
}

Status CheckWorkspaces(const pb::Plan& plan) {
  const std::vector<bool> resident = Residents(plan);
  std::set<int32_t> seen;
  for (const pb::Workspace& row : plan.workspaces()) {
    const std::string place = fmt::format("workspace \"{}\"", row.library());
    RETURN_IF_ERROR(
        CheckOwned(plan, "workspace", place, row.buffer(), pb::WORKSPACE, resident, seen));
    const std::optional<int64_t> bytes = oplib::WorkspaceBytes(row.library(), row.arch());
    if (!bytes) {
      return Broken("workspace", place,
                    fmt::format("the op library knows none of it on \"{}\"", row.arch()));
    }
    if (*bytes != plan.buffers(row.buffer()).bytes()) {
      return Broken("workspace", place,
                    fmt::format("buffer {} has {} bytes, on {} it takes {}", row.buffer(),
                                plan.buffers(row.buffer()).bytes(), row.arch(), *bytes));
    }
  }
  for (const int32_t b : plan.resident()) {
    if (plan.buffers(b).category() != pb::WORKSPACE || seen.contains(b)) continue;
    return Broken("workspace", fmt::format("buffer {}", b), "is nobody's workspace");
  }
  return OkStatus();
}

// Counts writes of the loss and follows which random numbers have been drawn, program by program.
class ValueWalk {
 public:
  explicit ValueWalk(const pb::Plan& plan) : plan_(plan) {}

  void BeginProgram(int number) {
    number_ = number;
    losses_.clear();
    drawn_.clear();
  }
  void BeginSegment(int, int, int repetition) { repetition_ = repetition; }

  Status Visit(int segment, int index) {
    const pb::Op& op = plan_.segments(segment).ops(index);
    RETURN_IF_ERROR(CheckRandom(op, segment, index));
    if (plan_.losses().empty()) return OkStatus();
    if (op.phase() == pb::FORWARD) losses_.try_emplace(MicroBatch(op), 0);
    for (int i = 0; i < op.out_size(); ++i) {
      if (std::ranges::find(plan_.losses(), op.out(i)) == plan_.losses().end()) continue;
      RETURN_IF_ERROR(CheckLoss(op, i, segment, index));
      ++losses_[MicroBatch(op)];
    }
    return OkStatus();
  }

  Status EndProgram(int) {
    for (const auto& [micro_batch, writes] : losses_) {
      if (writes == 1) continue;
      return Broken("loss", fmt::format("program \"{}\"", WalkedProgram(plan_, number_).name()),
                    fmt::format("micro-batch {} writes its loss {} times, expected once",
                                micro_batch, writes));
    }
    return OkStatus();
  }

 private:
  // Each repetition of a segment is the next one.
  int64_t MicroBatch(const pb::Op& op) const { return int64_t{op.micro_batch()} + repetition_; }

  std::string Place(int segment, int index) const {
    return OpPlace(plan_, plan_.segments(segment), index);
  }

  Status CheckLoss(const pb::Op& op, int result, int segment, int index) const {
    if (op.has_compute()) {
      const pb::TensorType& type = plan_.kernels(op.compute().kernel()).results(result);
      const bool known =
          type.dtype() == pb::FP32 || type.dtype() == plan_.decisions().param_dtype();
      if (known && Numel(type.shape()) == 1) return OkStatus();
    }
    return Broken("loss", Place(segment, index),
                  fmt::format("writes buffer {}, the loss, not as one element of fp32 or the "
                              "compute dtype",
                              op.out(result)));
  }

  // Forward kernels draw for themselves; a backward draws what its forward has drawn.
  Status CheckRandom(const pb::Op& op, int segment, int index) {
    const bool draws = op.has_compute() && oplib::Draws(plan_.kernels(op.compute().kernel()));
    const std::string place = draws || op.has_random() ? Place(segment, index) : "";
    if (draws != op.has_random()) {
      return Broken("random", place,
                    draws ? "drops and says not which random numbers it draws"
                          : "draws random numbers and does not drop");
    }
    if (!draws) return OkStatus();
    const std::pair numbers{MicroBatch(op), op.random()};
    const bool fresh = drawn_.insert(numbers).second;
    if (op.random() >= 0 && fresh == (op.phase() == pb::FORWARD)) return OkStatus();
    return Broken("random", place,
                  fmt::format("draws the random numbers {}, which {}", op.random(),
                              op.random() < 0 ? "are none"
                              : fresh         ? "no op before it has drawn"
                                              : "an op before it has drawn"));
  }

  const pb::Plan& plan_;
  int number_ = 0;
  int repetition_ = 0;
  std::map<int64_t, int> losses_;                // writes of each micro-batch
  std::set<std::pair<int64_t, int32_t>> drawn_;  // micro-batch, numbers
};

}  // namespace

Status CheckValues(const pb::Plan& plan) {
  RETURN_IF_ERROR(CheckInitials(plan));
  RETURN_IF_ERROR(CheckModuleBuffers(plan));
  RETURN_IF_ERROR(CheckWorkspaces(plan));
  for (const int32_t loss : plan.losses()) {
    if (InTable(loss, plan.buffers_size())) continue;
    return Broken("index", "loss", fmt::format("buffer {} of {}", loss, plan.buffers_size()));
  }
  ValueWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
