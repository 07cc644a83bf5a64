// How far two reports may be apart before `foreshard compare` calls it a regression.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/status.h"

namespace foreshard {

// Of bytes: a fixed amount, or a share of the first report's figure.
struct ByteTolerance {
  std::string text = "0";  // as given
  int64_t bytes = 0;
  double share = 0;

  bool Allows(int64_t a, int64_t b) const;
};

// Of times: the larger of two is at most this multiple of the smaller one ("2x"), or the second is
// within this share of the first ("50%").
struct TimeTolerance {
  std::string text;
  double factor = 0;  // 0 = `share` is meant
  double share = 0;

  bool Allows(int64_t a, int64_t b) const;
};

struct Tolerances {
  ByteTolerance peak;    // of every category and the total, at the end and the peaks of each phase
  ByteTolerance memory;  // the same after each op
  bool places = true;    // peaks are at the same op
  std::optional<TimeTolerance> time;  // of the step and each kind of op; none = not judged
};

// "peak=0,memory=1MiB,places=no,time=50%". What is not named keeps its default, and memory that of
// peak. Errors are kInvalidArgument.
StatusOr<Tolerances> ParseTolerances(std::string_view text);

}  // namespace foreshard
