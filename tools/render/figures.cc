#include "tools/render/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "proto/base/units.h"
#include "proto/base/units_text.h"

namespace foreshard {
namespace {

constexpr int kGibiShift = 30;
constexpr int kMebiShift = 20;

std::string Shifted(int64_t bytes, int shift) {
  return fmt::format("{:.2f}",
                     static_cast<double>(bytes) / static_cast<double>(int64_t{1} << shift));
}

}  // namespace

std::string Style::Number(int64_t bytes) const {
  return Shifted(bytes, gibi ? kGibiShift : kMebiShift);
}

Style StyleFor(int64_t peak_bytes, int width) {
  constexpr int64_t kSmallPeak = int64_t{1} << 28;
  return {.width = width, .gibi = peak_bytes >= kSmallPeak};
}

std::string Gib(int64_t bytes) { return Shifted(bytes, kGibiShift); }

std::string Percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : "-";
}

std::string TimeText(int64_t ps) { return ps == 0 ? "0" : FormatSeconds(SimTime(ps)); }

std::string Bar(int64_t part, int64_t whole, int width) {
  if (whole <= 0) return "";
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  return std::string(static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * width)), '#');
}

}  // namespace foreshard
