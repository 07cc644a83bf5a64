#include "proto/plan_check.h"

#include <fmt/format.h>

#include "proto/plan_check_parts.h"

namespace foreshard {

namespace plan_check {

Status Broken(std::string_view rule, std::string_view place, std::string_view what) {
  return InvalidPlan(fmt::format("rule {}: {}: {}", rule, place, what));
}

std::string OpKind(const pb::Op& op) {
  const auto* kind = pb::Op::descriptor()->FindFieldByNumber(static_cast<int>(op.kind_case()));
  return kind ? std::string(kind->name()) : "no kind";
}

std::string OpPlace(const pb::Plan& plan, const pb::Segment& segment, int op) {
  const pb::Op& o = segment.ops(op);
  std::string what = OpKind(o);
  if (o.has_compute() && InTable(o.compute().kernel(), plan.kernels_size())) {
    what += " " + plan.kernels(o.compute().kernel()).name();
  }
  if (o.has_module() && InTable(o.module(), plan.modules_size())) {
    what += ", " + plan.modules(o.module()).path();
  } else if (o.has_unit() && InTable(o.unit(), plan.units_size())) {
    what += ", " + plan.units(o.unit()).name();
  }
  return fmt::format("segment \"{}\" op {} ({})", segment.name(), op, what);
}

int64_t ElementBytes(pb::DType dtype) {
  switch (dtype) {
    case pb::FP32:
      return 4;
    case pb::BF16:
    case pb::FP16:
      return 2;
    case pb::INT64:
    case pb::UINT64:
      return 8;
    case pb::BOOL:
      return 1;
    default:
      return 0;
  }
}

std::optional<int64_t> Multiply(int64_t a, int64_t b) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product >= kLimit) {
    return std::nullopt;
  }
  return product;
}

}  // namespace plan_check

Status CheckPlan(const pb::Plan& plan) {
  if (plan.header().format_version() != kPlanFormatVersion) {
    return plan_check::Broken(
        "version", "header",
        fmt::format("format version {}, this program reads {}; write the plan again",
                    plan.header().format_version(), kPlanFormatVersion));
  }
  RETURN_IF_ERROR(plan_check::CheckTables(plan));
  RETURN_IF_ERROR(plan_check::CheckLayout(plan));
  RETURN_IF_ERROR(plan_check::CheckKernels(plan));
  RETURN_IF_ERROR(plan_check::CheckOps(plan));
  RETURN_IF_ERROR(plan_check::CheckValues(plan));
  RETURN_IF_ERROR(plan_check::CheckLifetimes(plan));
  RETURN_IF_ERROR(plan_check::CheckData(plan));
  RETURN_IF_ERROR(plan_check::CheckReplicas(plan));
  RETURN_IF_ERROR(plan_check::CheckEvents(plan));
  return plan_check::CheckOrder(plan);
}

}  // namespace foreshard
