#include "sim/catalogue.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "proto/base/text.h"
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

Status UnknownName(const std::string& name) {
  const std::vector<std::string> names = CatalogueClusters();
  const std::optional<std::string> nearest = NearestMatch(name, names);
  return NotFound(fmt::format(
      "no cluster \"{}\" in the catalogue{} Known: {}; or give a file (.textproto, .pb, .json)",
      name, nearest ? fmt::format(", did you mean {}?", *nearest) : ".", fmt::join(names, ", ")));
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
