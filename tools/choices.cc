#include "tools/choices.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "proto/base/text.h"
#include "proto/base/units_text.h"

namespace foreshard {
namespace {

// Without a limit, the words after the flag that are no flags would be taken as well.
template <typename T>
CLI::Option* AddValues(CLI::App& app, const std::string& flag, std::vector<T>* values,
                       Repeat repeat, const std::string& help) {
  if (repeat == Repeat::kNo) return app.add_option(flag, *values, help)->expected(1);
  return app.add_option(flag, *values, help + "; may repeat")->allow_extra_args(false);
}

// Rewrites `text` as plain digits, or says what is wrong.
std::string NormaliseCount(std::string& text, int64_t max) {
  const StatusOr<int64_t> count = ParseCount(text);
  if (!count.ok() || *count < 1 || *count > max) {
    return fmt::format("found \"{}\", expected an integer from 1 to {}", text, max);
  }
  text = std::to_string(*count);
  return "";
}

}  // namespace

std::string ChoiceError(const std::string& text, const std::vector<std::string>& names) {
  if (std::ranges::find(names, text) != names.end()) return "";
  const std::optional<std::string> nearest = NearestMatch(text, names);
  return fmt::format("found \"{}\", expected one of {}{}", text, fmt::join(names, ", "),
                     nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

std::string ChoiceHelp(const std::string& help, const std::vector<std::string>& names) {
  return fmt::format("{}: {}", help, fmt::join(names, ", "));
}

std::optional<double> ParseNumber(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

CLI::Option* AddTexts(CLI::App& app, const std::string& flag, std::vector<std::string>* values,
                      Repeat repeat, const std::string& help) {
  return AddValues(app, flag, values, repeat, help);
}

CLI::Option* AddCounts(CLI::App& app, const std::string& flag, std::vector<int64_t>* values,
                       int64_t max, Repeat repeat, const std::string& help) {
  const auto check = [max](std::string& text) { return NormaliseCount(text, max); };
  return AddValues(app, flag, values, repeat, help)->transform(CLI::Validator(check, ""));
}

}  // namespace foreshard
