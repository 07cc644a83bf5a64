#include "sim/catalogue.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "sim/catalogue_data.h"
#include "sim/cluster_check.h"

namespace foreshard {
namespace {

bool IsFile(std::string_view source) {
  return source.find('/') != std::string_view::npos || source.ends_with(".textproto") ||
         source.ends_with(".pb") || source.ends_with(".json");
}

// Letters to insert, delete or replace to turn one word into the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Status UnknownName(const std::string& name) {
  const std::vector<std::string> names = CatalogueClusters();
  const auto nearest = std::min_element(
      names.begin(), names.end(),
      [&](const auto& a, const auto& b) { return EditDistance(name, a) < EditDistance(name, b); });
  return NotFound(
      fmt::format("no cluster \"{}\" in the catalogue, did you mean {}? Known: {}; or give a file "
                  "(.textproto, .pb, .json)",
                  name, *nearest, fmt::join(names, ", ")));
}

}  // namespace

StatusOr<pb::Cluster> LoadCluster(const std::string& source) {
  pb::Cluster cluster;
  if (IsFile(source)) {
    RETURN_IF_ERROR(ReadMessage(source, cluster));
  } else {
    const auto& entries = sim::CatalogueData();
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& e) { return e.name == source; });
    if (entry == entries.end()) return UnknownName(source);
    RETURN_IF_ERROR(ParseText(entry->text, source, cluster));
  }
  if (cluster.name().empty()) cluster.set_name(source);
  RETURN_IF_ERROR(CheckCluster(cluster).At(source));
  return cluster;
}

std::vector<std::string> CatalogueClusters() {
  std::vector<std::string> names;
  for (const sim::CatalogueEntry& entry : sim::CatalogueData()) names.emplace_back(entry.name);
  return names;
}

}  // namespace foreshard
