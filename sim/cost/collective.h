// Ring collectives: latency per step plus bandwidth (docs/model.md, "Collectives").
#pragma once

#include "proto/base/units.h"

namespace foreshard::pb {
class Cluster;
class Group;
}  // namespace foreshard::pb

namespace foreshard::sim {

// What a ring over one group runs on.
struct Ring {
  int ranks = 1;
  int nodes = 1;
  Seconds base{0};        // before the first step
  Seconds intra_step{0};  // one step between neighbours of a node
  Seconds inter_step{0};  // one step from node to node
  BytesPerSecond bandwidth;
};

// Nodes that the widest of the world's groups of this shape touches when ranks fill nodes of
// `gpus_per_node` in order. REQUIRES: all positive; complexity O(world).
int NodesSpanned(const pb::Group& group, int world, int gpus_per_node);

// REQUIRES: the cluster is valid.
Ring RingOf(const pb::Group& group, int world, const pb::Cluster& cluster);

// Time of an all-gather or a reduce-scatter whose full buffer (output of the one, input of the
// other) holds `full` bytes. Zero for one rank or no bytes.
Seconds RingTime(const Ring& ring, Bytes full);

// Likewise of an all-reduce of `full` bytes: a reduce-scatter and an all-gather, begun as one.
Seconds AllReduceTime(const Ring& ring, Bytes full);

// Likewise of a broadcast of `full` bytes, which are passed on in pieces.
Seconds BroadcastTime(const Ring& ring, Bytes full);

}  // namespace foreshard::sim
