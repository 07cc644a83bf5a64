// Hardware descriptions: files and the built-in catalogue (sim/catalogue/*.textproto).
#pragma once

#include <string>
#include <vector>

#include "proto/base/status.h"

namespace foreshard::pb {
class Cluster;
}

namespace foreshard {

// `source` is a file (.textproto, .pb, .json) or a catalogue name ("dgx-a100-80g").
StatusOr<pb::Cluster> LoadCluster(const std::string& source);

// Names that LoadCluster accepts besides files, in order.
std::vector<std::string> CatalogueClusters();

}  // namespace foreshard
