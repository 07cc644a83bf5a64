// The built-in hardware descriptions as text; the source is generated from sim/catalogue.
#pragma once

#include <string_view>
#include <vector>

namespace foreshard::sim {

struct CatalogueEntry {
  std::string_view name;
  std::string_view text;  // textproto of pb::Cluster
};

const std::vector<CatalogueEntry>& CatalogueData();  // sorted by name

}  // namespace foreshard::sim
