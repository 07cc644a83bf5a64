// What a run measured, for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace foreshard::pb {
class Report;
}

namespace foreshard {

// "step 3  loss 5.4321  gradient norm 0.8765", without an end of line. `norm` may be null.
std::string StepText(int64_t step, std::span<const double> losses, const double* norm);

// Lines of at most `width` columns, from a report that a run has filled.
std::string RenderRun(const pb::Report& report, int width);

}  // namespace foreshard
