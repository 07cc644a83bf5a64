// The config.json files beside this one, compiled in by planner/catalogue/embed.cmake.
#pragma once

#include <span>
#include <string_view>

namespace foreshard {

struct CatalogueEntry {
  std::string_view name;  // the file's name without .json
  std::string_view text;
};

extern const std::span<const CatalogueEntry> kCatalogue;  // in order of names

}  // namespace foreshard
