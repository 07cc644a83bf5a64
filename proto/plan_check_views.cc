// Operands and results of kernels as views of buffers.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "proto/plan_check_op.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

// Bytes from the start of a buffer to the end of a view's last element; 0 for a view of nothing.
std::optional<int64_t> ViewEnd(const pb::TensorType& type, int64_t offset) {
  const std::optional<int64_t> numel = Numel(type.shape());
  if (!numel || offset < 0) return std::nullopt;
  if (*numel == 0) return 0;
  int64_t last = offset;
  if (type.strides().empty()) {
    if (__builtin_add_overflow(last, *numel - 1, &last)) return std::nullopt;
  }
  for (int i = 0; i < type.strides_size(); ++i) {
    const std::optional<int64_t> reach = Multiply(type.shape(i) - 1, type.strides(i));
    if (!reach || __builtin_add_overflow(last, *reach, &last)) return std::nullopt;
  }
  int64_t elements = 0;
  if (__builtin_add_overflow(last, int64_t{1}, &elements)) return std::nullopt;
  return Multiply(elements, ElementBytes(type.dtype()));
}

Status CheckView(const OpContext& c, const pb::TensorType& type, int32_t buffer, int64_t offset) {
  const std::optional<int64_t> end = ViewEnd(type, offset);
  const int64_t bytes = c.buffer(buffer).bytes();
  if (end && *end <= bytes) return CheckFlatView(c, type, buffer, offset, *end);
  return c.Broken("view", fmt::format("its view of buffer {} ends at byte {}, the buffer at {}",
                                      buffer, end ? fmt::to_string(*end) : "2^62 or more", bytes));
}

// What kernels write is as large as the largest view of it.
class ViewEnds {
 public:
  explicit ViewEnds(const pb::Plan& plan)
      : plan_(plan), ends_(static_cast<size_t>(plan.buffers_size())), written_(ends_.size()) {}

  void Add(const pb::Op& op) {
    if (!op.has_compute()) return;
    const pb::Kernel& kernel = plan_.kernels(op.compute().kernel());
    for (int i = 0; i < op.in_size(); ++i) {
      Add(op.in(i), kernel.operands(i), op.in_offsets_size() ? op.in_offsets(i) : 0);
    }
    for (int i = 0; i < op.out_size(); ++i) {
      Add(op.out(i), kernel.results(i), 0);
      written_[static_cast<size_t>(op.out(i))] = true;
    }
  }

  Status Check() const {
    for (int b = 0; b < plan_.buffers_size(); ++b) {
      const int64_t end = ends_[static_cast<size_t>(b)];
      if (!written_[static_cast<size_t>(b)] || plan_.buffers(b).bytes() == end) continue;
      return Broken(
          "view", fmt::format("buffer {}", b),
          fmt::format("has {} bytes, its largest view ends at {}", plan_.buffers(b).bytes(), end));
    }
    return OkStatus();
  }

 private:
  void Add(int32_t buffer, const pb::TensorType& type, int64_t offset) {
    int64_t& end = ends_[static_cast<size_t>(buffer)];
    end = std::max(end, ViewEnd(type, offset).value_or(0));
  }

  const pb::Plan& plan_;
  std::vector<int64_t> ends_;
  std::vector<bool> written_;
};

}  // namespace

Status CheckCompute(const OpContext& c) {
  const pb::Op& op = c.op();
  if (!InTable(op.compute().kernel(), c.plan.kernels_size())) {
    return c.Broken("index",
                    fmt::format("kernel {} of {}", op.compute().kernel(), c.plan.kernels_size()));
  }
  const pb::Kernel& kernel = c.plan.kernels(op.compute().kernel());
  if (op.in_size() != kernel.operands_size() || op.out_size() != kernel.results_size()) {
    return c.Broken("kernel", fmt::format("{} buffers read and {} written, the kernel has {} "
                                          "operands and {} results",
                                          op.in_size(), op.out_size(), kernel.operands_size(),
                                          kernel.results_size()));
  }
  for (int i = 0; i < op.in_size(); ++i) {
    const int64_t offset = op.in_offsets_size() ? op.in_offsets(i) : 0;
    RETURN_IF_ERROR(CheckView(c, kernel.operands(i), op.in(i), offset));
  }
  for (int i = 0; i < op.out_size(); ++i) {
    RETURN_IF_ERROR(CheckView(c, kernel.results(i), op.out(i), 0));
  }
  return OkStatus();
}

Status CheckViewSizes(const pb::Plan& plan) {
  ViewEnds ends(plan);
  for (const pb::Segment& segment : plan.segments()) {
    for (const pb::Op& op : segment.ops()) ends.Add(op);
  }
  return ends.Check();
}

}  // namespace foreshard::plan_check
