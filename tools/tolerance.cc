#include "tools/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <vector>

#include "proto/base/text.h"
#include "proto/base/units_text.h"

namespace foreshard {
namespace {

const std::vector<std::string>& Keys() {
  static const std::vector<std::string> keys = {"peak", "memory", "places", "time"};
  return keys;
}

// A finite number of at least 0 that is all of `text`.
std::optional<double> NumberIn(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> NumberBefore(char suffix, std::string_view text) {
  if (!text.ends_with(suffix)) return std::nullopt;
  return NumberIn(text.substr(0, text.size() - 1));
}

Status Bad(std::string_view key, std::string_view value, std::string_view expected) {
  return InvalidArgument(
      fmt::format("--tolerance: {}: found \"{}\", expected {}", key, value, expected));
}

StatusOr<ByteTolerance> ParseByteTolerance(std::string_view key, std::string_view value) {
  ByteTolerance tolerance;
  tolerance.text = value;
  if (const std::optional<double> percent = NumberBefore('%', value)) {
    tolerance.share = *percent / 100;
    return tolerance;
  }
  const StatusOr<Bytes> bytes = ParseBytes(value);
  if (!bytes.ok() || bytes->count() < 0) return Bad(key, value, "bytes (0, 1MiB) or percent (1%)");
  tolerance.bytes = bytes->count();
  return tolerance;
}

StatusOr<TimeTolerance> ParseTimeTolerance(std::string_view value) {
  TimeTolerance tolerance;
  tolerance.text = value;
  if (const std::optional<double> percent = NumberBefore('%', value)) {
    tolerance.share = *percent / 100;
    return tolerance;
  }
  const std::optional<double> factor = NumberBefore('x', value);
  if (!factor || *factor < 1) return Bad("time", value, "percent (50%) or a factor from 1 on (2x)");
  tolerance.factor = *factor;
  return tolerance;
}

Status ParseOne(std::string_view key, std::string_view value, Tolerances& out) {
  if (key == "peak") {
    ASSIGN_OR_RETURN(out.peak, ParseByteTolerance(key, value));
  } else if (key == "memory") {
    ASSIGN_OR_RETURN(out.memory, ParseByteTolerance(key, value));
  } else if (key == "time") {
    ASSIGN_OR_RETURN(out.time, ParseTimeTolerance(value));
  } else if (key == "places") {
    if (value != "yes" && value != "no") return Bad(key, value, "yes or no");
    out.places = value == "yes";
  } else {
    const std::optional<std::string> nearest = NearestMatch(key, Keys());
    return InvalidArgument(
        fmt::format("--tolerance: found \"{}\", expected one of peak, memory, places, time{}", key,
                    nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
  }
  return OkStatus();
}

}  // namespace

bool ByteTolerance::Allows(int64_t a, int64_t b) const {
  const double apart = std::abs(static_cast<double>(b - a));
  return a == b || apart <= static_cast<double>(bytes) ||
         apart <= share * std::abs(static_cast<double>(a));
}

bool TimeTolerance::Allows(int64_t a, int64_t b) const {
  if (a == b) return true;
  const auto before = static_cast<double>(a);
  const auto after = static_cast<double>(b);
  if (factor > 0) return std::max(before, after) <= factor * std::min(before, after);
  return std::abs(after - before) <= share * before;
}

StatusOr<Tolerances> ParseTolerances(std::string_view text) {
  Tolerances out;
  std::set<std::string, std::less<>> given;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgument(fmt::format(
          "--tolerance: found \"{}\", expected KEY=VALUE with one of peak, memory, places, time",
          one));
    }
    const std::string_view key = one.substr(0, equals);
    if (!given.emplace(key).second) {
      return InvalidArgument(fmt::format("--tolerance: {} is given twice", key));
    }
    RETURN_IF_ERROR(ParseOne(key, one.substr(equals + 1), out));
  }
  if (!given.contains("memory")) out.memory = out.peak;
  return out;
}

}  // namespace foreshard
