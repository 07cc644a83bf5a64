// Where units begin to run their forward again in backward.
#pragma once

#include <set>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard::golden {

class RecomputeMarks {
 public:
  explicit RecomputeMarks(const pb::Plan& plan);

  // True for the first op of a wrapped module that runs again. REQUIRES: called for every op in
  // issue order.
  bool Enters(const pb::Op& op);
  int unit() const { return unit_; }  // of the last op for which Enters() was true

 private:
  std::vector<int> wrapped_;         // by module: the innermost wrapped one around it, or -1
  std::vector<int> unit_of_module_;  // of wrapped modules
  std::set<int> entered_;            // wrapped modules, since the last op that is no recomputation
  int unit_ = -1;
};

}  // namespace foreshard::golden
