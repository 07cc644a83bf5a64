#include "sim/cost/collective.h"

#include <algorithm>

#include "proto/base/check.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"

namespace foreshard::sim {
namespace {

// Nodes touched by ranks first, first + stride, ... (`size` of them).
int NodesFrom(int64_t first, const pb::Group& group, int gpus_per_node) {
  if (group.stride() >= gpus_per_node) return group.size();
  const int64_t last = first + int64_t{group.size() - 1} * group.stride();
  // No node is skipped, because neighbours are less than a node apart.
  return static_cast<int>(last / gpus_per_node - first / gpus_per_node + 1);
}

}  // namespace

int NodesSpanned(const pb::Group& group, int world, int gpus_per_node) {
  CHECK(group.size() > 0 && group.stride() > 0 && world > 0 && gpus_per_node > 0);
  const int64_t span = int64_t{group.size()} * group.stride();
  int widest = 1;
  for (int64_t block = 0; block + span <= world; block += span) {
    for (int offset = 0; offset < group.stride(); ++offset) {
      widest = std::max(widest, NodesFrom(block + offset, group, gpus_per_node));
    }
  }
  return widest;
}

Ring RingOf(const pb::Group& group, int world, const pb::Cluster& cluster) {
  Ring ring;
  ring.ranks = group.size();
  ring.nodes = NodesSpanned(group, world, cluster.node().gpus());
  ring.base = Seconds(cluster.host().collective_base_seconds());
  ring.intra_step = Seconds(cluster.node().link_step_seconds());
  ring.inter_step = Seconds(cluster.network().step_seconds());
  double rate = cluster.node().link_bytes_per_second();
  if (ring.nodes > 1) {
    const pb::Network& network = cluster.network();
    // Groups that interleave within a node run at the same time and share its NICs.
    const int sharing = std::min(group.stride(), cluster.node().gpus());
    rate = std::min(
        rate, network.nics() * network.nic_bytes_per_second() * network.efficiency() / sharing);
  }
  ring.bandwidth = BytesPerSecond(rate);
  CHECK(rate > 0) << "a ring without bandwidth";
  return ring;
}

namespace {

// Once around the ring: everybody's slice reaches everybody else.
Seconds RoundTime(const Ring& ring, Bytes full) {
  const Seconds latency =
      (ring.ranks - ring.nodes) * ring.intra_step + (ring.nodes - 1) * ring.inter_step;
  const double share = static_cast<double>(ring.ranks - 1) / ring.ranks;
  return latency + share * (full / ring.bandwidth);
}

}  // namespace

Seconds RingTime(const Ring& ring, Bytes full) {
  if (ring.ranks == 1 || full.count() == 0) return Seconds(0);
  return ring.base + RoundTime(ring, full);
}

Seconds AllReduceTime(const Ring& ring, Bytes full) {
  if (ring.ranks == 1 || full.count() == 0) return Seconds(0);
  return ring.base + 2.0 * RoundTime(ring, full);
}

Seconds BroadcastTime(const Ring& ring, Bytes full) {
  if (ring.ranks == 1 || full.count() == 0) return Seconds(0);
  const int between = ring.nodes - 1;
  return ring.base + (ring.ranks - 1 - between) * ring.intra_step + between * ring.inter_step +
         full / ring.bandwidth;
}

}  // namespace foreshard::sim
