// Derivatives checked by central differences: an expression of the eager emulation is planned with
// its backward, and both are run by the sequential runner.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "planner/eager/eager.h"
#include "planner/eager/ops.h"

namespace foreshard {

struct GradientInput {
  Dims shape;
  enum Kind {
    kAny,         // magnitudes between 0.3 and 1.3, so that nothing has a kink within the step
    kPositive,    // the same, all positive
    kSixteenths,  // multiples of 1/16, which survive a cast to bf16
    kConstant,    // as kAny, without a gradient
    kIndices      // int64 below `limit`, without a gradient
  } kind = kAny;
  int64_t limit = 0;
};

struct GradientCase {
  std::string name;
  std::vector<GradientInput> inputs;
  std::function<Tensor(Eager&, const std::vector<Tensor>&)> expression;
};

struct GradientResult {
  double worst = 0;   // largest error of a gradient, relative to the largest gradient
  int gradients = 0;  // elements compared
  std::set<std::string> forward, backward;  // kernels
};

// Compares the gradients of a random weighted sum of the expression's elements.
GradientResult CheckGradient(const GradientCase& c);

}  // namespace foreshard
