#include "tests/golden/plan_recompute.h"

#include <string>

namespace foreshard::golden {
namespace {

bool Contains(const std::string& outer, const std::string& path) {
  if (outer.empty() || outer == path) return true;
  return path.starts_with(outer) && path[outer.size()] == '.';
}

}  // namespace

RecomputeMarks::RecomputeMarks(const pb::Plan& plan)
    : wrapped_(plan.modules_size(), -1), unit_of_module_(plan.modules_size(), -1) {
  for (int u = 0; u < plan.units_size(); ++u) {
    for (const int32_t module : plan.units(u).modules()) unit_of_module_[module] = u;
  }
  for (int m = 0; m < plan.modules_size(); ++m) {
    // Modules are in named_modules order, so that the last that fits is the innermost.
    for (int outer = 0; outer <= m; ++outer) {
      if (unit_of_module_[outer] < 0) continue;
      if (Contains(plan.modules(outer).path(), plan.modules(m).path())) wrapped_[m] = outer;
    }
  }
}

bool RecomputeMarks::Enters(const pb::Op& op) {
  if (!op.has_compute()) return false;
  if (!op.compute().recompute()) {
    entered_.clear();
    return false;
  }
  if (!op.has_module() || wrapped_[op.module()] < 0) return false;
  unit_ = unit_of_module_[wrapped_[op.module()]];
  return entered_.insert(wrapped_[op.module()]).second;
}

}  // namespace foreshard::golden
