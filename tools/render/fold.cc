#include "tools/render/fold.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace foreshard {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

std::optional<int64_t> AsNumber(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

// A single path; nullopt unless exactly one of its parts is a number.
std::optional<NumberedName> ParsePath(std::string_view path) {
  NumberedName name;
  bool found = false;
  for (const std::string_view part : Split(path, '.')) {
    const std::optional<int64_t> number = AsNumber(part);
    if (number && found) return std::nullopt;
    if (number) {
      name.first = name.last = *number;
      found = true;
    } else if (found) {
      name.suffix += fmt::format(".{}", part);
    } else {
      name.prefix += fmt::format("{}.", part);
    }
  }
  return found ? std::optional(name) : std::nullopt;
}

bool Follows(const NumberedName& a, const NumberedName& b) {
  return a.prefix == b.prefix && a.suffix == b.suffix && b.first == a.last + 1;
}

std::string Label(const NumberedName& from, const NumberedName& to, size_t count) {
  std::string label = fmt::format("{}{}", from.prefix, from.first);
  if (to.last > from.first) label += fmt::format("..{}", to.last);
  label += from.suffix;
  return count > 1 ? label + fmt::format(" x{}", count) : label;
}

}  // namespace

std::optional<NumberedName> ParseNumbered(const std::string& name) {
  std::optional<NumberedName> whole;
  for (const std::string_view path : Split(name, '+')) {
    const std::optional<NumberedName> part = ParsePath(path);
    if (!part || (whole && !Follows(*whole, *part))) return std::nullopt;
    if (!whole) whole = part;
    whole->last = part->last;
  }
  return whole;
}

std::vector<Fold> FoldNames(const std::vector<std::string>& names,
                            const std::function<bool(size_t, size_t)>& alike) {
  std::vector<Fold> folds;
  std::optional<NumberedName> from, to;  // of the last fold, when it may grow
  for (size_t i = 0; i < names.size(); ++i) {
    const std::optional<NumberedName> name = ParseNumbered(names[i]);
    const bool joins = name && to && Follows(*to, *name) &&
                       name->last - name->first == to->last - to->first &&
                       alike(folds.back().begin, i);
    to = name;
    if (joins) {
      ++folds.back().count;
      folds.back().label = Label(*from, *to, folds.back().count);
      continue;
    }
    from = name;
    folds.push_back({.begin = i, .count = 1, .label = name ? Label(*name, *name, 1) : names[i]});
  }
  return folds;
}

}  // namespace foreshard
