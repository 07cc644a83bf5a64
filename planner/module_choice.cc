#include "planner/module_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "proto/base/text.h"

namespace foreshard {
namespace {

std::string DidYouMean(const std::string& word, const std::vector<std::string>& names) {
  const auto nearest = NearestMatch(word, names);
  return nearest ? fmt::format(" (did you mean {}?)", *nearest) : "";
}

}  // namespace

std::vector<std::string> SplitAt(char separator, std::string_view list) {
  std::vector<std::string> texts;
  for (;;) {
    const size_t end = list.find(separator);
    texts.emplace_back(list.substr(0, end));
    if (end == std::string_view::npos) return texts;
    list.remove_prefix(end + 1);
  }
}

std::vector<std::string> SplitAtCommas(std::string_view list) { return SplitAt(',', list); }

bool MatchesPath(std::string_view pattern, std::string_view path) {
  // fits[j]: the pattern so far fits the first j characters of the path.
  std::vector<bool> fits(path.size() + 1, false);
  fits[0] = true;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') {
      const bool crosses_dots = i + 1 < pattern.size() && pattern[i + 1] == '*';
      if (crosses_dots) ++i;
      for (size_t j = 1; j <= path.size(); ++j) {
        fits[j] = fits[j] || (fits[j - 1] && (crosses_dots || path[j - 1] != '.'));
      }
      continue;
    }
    for (size_t j = path.size(); j > 0; --j) fits[j] = fits[j - 1] && path[j - 1] == pattern[i];
    fits[0] = false;
  }
  return fits[path.size()];
}

StatusOr<int> ModuleAt(const ModelGraph& graph, const std::string& path, const char* what) {
  const int module = graph.FindModule(path);
  if (module != kNone) return module;
  std::vector<std::string> paths;
  for (const GraphModule& m : graph.modules) paths.push_back(m.path);
  return InvalidArgument(
      fmt::format("{}: the model has no module \"{}\"{}", what, path, DidYouMean(path, paths)));
}

StatusOr<std::vector<int>> ModulesOfClass(const ModelGraph& graph, const std::string& class_name,
                                          const char* what) {
  std::vector<int> found;
  std::set<std::string> classes;
  for (size_t i = 1; i < graph.modules.size(); ++i) {
    classes.insert(graph.modules[i].class_name);
    if (graph.modules[i].class_name == class_name) found.push_back(static_cast<int>(i));
  }
  if (!found.empty()) return found;
  const std::vector<std::string> names(classes.begin(), classes.end());
  return InvalidArgument(
      fmt::format("{}: no module has class \"{}\", so nothing would be chosen; the model's classes "
                  "are {}{}",
                  what, class_name, fmt::join(names, ", "), DidYouMean(class_name, names)));
}

StatusOr<std::vector<int>> Blocks(const ModelGraph& graph, const std::string& block_class,
                                  const char* what) {
  if (block_class.empty()) {
    return InvalidArgument(
        fmt::format("{}: the model names no block class; use class:NAME or pattern:PATH", what));
  }
  return ModulesOfClass(graph, block_class, what);
}

StatusOr<std::vector<int>> ModulesMatching(const ModelGraph& graph, std::string_view patterns,
                                           const char* what) {
  std::vector<bool> chosen(graph.modules.size(), false);
  for (const std::string& pattern : SplitAtCommas(patterns)) {
    bool fits_any = false;
    for (size_t m = 1; m < graph.modules.size(); ++m) {
      if (!MatchesPath(pattern, graph.modules[m].path)) continue;
      fits_any = true;
      chosen[m] = true;
    }
    if (!fits_any) {
      return InvalidArgument(fmt::format(
          "{}: no module's path fits \"{}\"; * stands for one name, ** for any", what, pattern));
    }
  }
  std::vector<int> modules;
  for (size_t m = 1; m < chosen.size(); ++m) {
    if (chosen[m]) modules.push_back(static_cast<int>(m));
  }
  return modules;
}

StatusOr<size_t> ParseEvery(const std::string& text, const char* what) {
  size_t k = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), k);
  if (error != std::errc() || end != text.data() + text.size() || k < 1) {
    return InvalidArgument(
        fmt::format("{}: \"every:{}\" wants a whole number of blocks, at least 1", what, text));
  }
  return k;
}

Status CheckHasForward(const ModelGraph& graph, int module, const char* what) {
  const GraphModule& m = graph.modules[module];
  if (m.class_name != "ModuleList" && m.class_name != "ModuleDict") return OkStatus();
  return InvalidArgument(
      fmt::format("{}: \"{}\" is a {} and has no forward; {} its children instead", what, m.path,
                  m.class_name, what));
}

}  // namespace foreshard
