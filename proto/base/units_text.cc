#include "proto/base/units_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

namespace foreshard {
namespace {

struct Prefix {
  std::string_view text;
  int64_t factor;
};

constexpr std::array<Prefix, 12> kPrefixes = {{{"", 1},
                                               {"k", 1'000},
                                               {"K", 1'000},
                                               {"M", 1'000'000},
                                               {"G", 1'000'000'000},
                                               {"T", 1'000'000'000'000},
                                               {"P", 1'000'000'000'000'000},
                                               {"Ki", int64_t{1} << 10},
                                               {"Mi", int64_t{1} << 20},
                                               {"Gi", int64_t{1} << 30},
                                               {"Ti", int64_t{1} << 40},
                                               {"Pi", int64_t{1} << 50}}};

// A number and what follows it, blanks around both removed.
struct Split {
  double value = 0;
  std::optional<int64_t> whole;  // when the number is written as digits only
  std::string_view rest;
};

std::string_view Trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// nullopt unless `text` starts with a finite number that has no sign.
std::optional<Split> SplitNumber(std::string_view text) {
  const std::string_view s = Trim(text);
  if (s.empty() || !((s.front() >= '0' && s.front() <= '9') || s.front() == '.')) {
    return std::nullopt;
  }
  const char* const end = s.data() + s.size();
  Split split;
  const auto real = std::from_chars(s.data(), end, split.value);
  if (real.ec != std::errc() || !std::isfinite(split.value)) return std::nullopt;
  int64_t whole = 0;
  const auto integer = std::from_chars(s.data(), end, whole);
  if (integer.ec == std::errc() && integer.ptr == real.ptr) split.whole = whole;
  split.rest = Trim(std::string_view(real.ptr, static_cast<size_t>(end - real.ptr)));
  return split;
}

std::optional<int64_t> FactorOf(std::string_view prefix) {
  for (const Prefix& p : kPrefixes) {
    if (p.text == prefix) return p.factor;
  }
  return std::nullopt;
}

// number * factor, rounded to a whole number; nullopt when past int64_t.
std::optional<int64_t> Scale(const Split& number, int64_t factor) {
  int64_t product = 0;
  if (number.whole && !__builtin_mul_overflow(*number.whole, factor, &product)) return product;
  const double real = number.value * static_cast<double>(factor);
  if (real >= 0x1p63) return std::nullopt;
  return std::llround(real);
}

Status Refuse(std::string_view what, std::string_view text, std::string_view expected) {
  return InvalidArgument("\"" + std::string(text) + "\" is not a " + std::string(what) +
                         "; expected " + std::string(expected));
}

std::string Fixed(double value, int decimals, const char* unit) {
  std::array<char, 400> buffer;  // the longest double has 309 digits before the point
  std::snprintf(buffer.data(), buffer.size(), "%.*f %s", decimals, value, unit);
  return buffer.data();
}

}  // namespace

StatusOr<Bytes> ParseBytes(std::string_view text) {
  constexpr std::string_view kExpected = "a number with B, kB, MB, GB, TB or KiB, MiB, GiB, TiB";
  const std::optional<Split> number = SplitNumber(text);
  if (!number) return Refuse("size", text, kExpected);
  std::string_view unit = number->rest;
  if (unit.ends_with('B')) {
    unit.remove_suffix(1);
  } else if (!unit.empty()) {
    const bool lacks_byte = FactorOf(unit).has_value();
    return Refuse("size", text,
                  lacks_byte ? "a unit that ends in B, as GB (10^9) or GiB (2^30)" : kExpected);
  }
  const std::optional<int64_t> factor = FactorOf(unit);
  if (!factor) return Refuse("size", text, kExpected);
  const std::optional<int64_t> bytes = Scale(*number, *factor);
  if (!bytes) return Refuse("size", text, "less than 2^63 bytes");
  return Bytes(*bytes);
}

StatusOr<BytesPerSecond> ParseBandwidth(std::string_view text) {
  constexpr std::string_view kExpected =
      "a number with GB/s, GiB/s (bytes) or Gbps, Gb/s, Gbit/s (bits)";
  const std::optional<Split> number = SplitNumber(text);
  if (!number) return Refuse("bandwidth", text, kExpected);
  struct Suffix {
    std::string_view text;
    double bytes;
  };
  constexpr std::array<Suffix, 6> kSuffixes = {
      {{"bit/s", 0.125}, {"B/s", 1}, {"Bps", 1}, {"b/s", 0.125}, {"bps", 0.125}, {"", 1}}};
  for (const Suffix& suffix : kSuffixes) {
    if (!number->rest.ends_with(suffix.text)) continue;
    const std::string_view prefix =
        number->rest.substr(0, number->rest.size() - suffix.text.size());
    const std::optional<int64_t> factor = FactorOf(prefix);
    if (!factor || (suffix.text.empty() && !prefix.empty())) break;
    const double rate = number->value * static_cast<double>(*factor) * suffix.bytes;
    if (!(rate > 0) || !std::isfinite(rate)) {
      return Refuse("bandwidth", text, "more than 0 bytes per second");
    }
    return BytesPerSecond(rate);
  }
  return Refuse("bandwidth", text, kExpected);
}

StatusOr<int64_t> ParseCount(std::string_view text) {
  constexpr std::string_view kExpected = "a whole number, as 2048, 2,048 or 4e6";
  const std::string_view trimmed = Trim(text);
  std::string digits;
  size_t group = 0;  // digits since the last comma
  bool commas = false;
  for (const char c : trimmed) {
    if (c == ',') {
      const bool fits = commas ? group == 3 : group >= 1 && group <= 3;
      if (!fits) return Refuse("count", text, kExpected);
      commas = true;
      group = 0;
    } else {
      digits += c;
      ++group;
    }
  }
  if (commas && group != 3) return Refuse("count", text, kExpected);
  const std::optional<Split> number = SplitNumber(digits);
  if (!number || !number->rest.empty() || (commas && !number->whole)) {
    return Refuse("count", text, kExpected);
  }
  if (number->value != std::floor(number->value)) return Refuse("count", text, kExpected);
  const std::optional<int64_t> count = Scale(*number, 1);
  if (!count) return Refuse("count", text, "less than 2^63");
  return *count;
}

std::string FormatBytes(Bytes bytes) {
  struct Unit {
    const char* name;
    double size;
  };
  constexpr std::array<Unit, 3> kUnits = {{{"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}}};
  const double value = static_cast<double>(bytes.count());
  for (const Unit& unit : kUnits) {
    // What would print as 1024.00 of the next smaller unit is 1.00 of this one.
    const double smallest = unit.size * (1023.995 / 1024);
    if (std::fabs(value) >= smallest && std::fabs(value) >= 1024) {
      return Fixed(value / unit.size, 2, unit.name);
    }
  }
  return std::to_string(bytes.count()) + " B";
}

std::string FormatSeconds(Seconds seconds) {
  const double value = seconds.count();
  // What would print as 1000.000 of the smaller unit is 1.000 of the larger one.
  if (!(std::fabs(value) < 0.9999995)) return Fixed(value, 3, "s");
  if (std::fabs(value) >= 0.9999995e-3) return Fixed(value * 1e3, 3, "ms");
  return Fixed(value * 1e6, 3, "us");
}

std::string FormatCount(int64_t count) {
  std::string text = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace foreshard
