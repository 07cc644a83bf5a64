#include "sim/cost/collective.h"

#include <gtest/gtest.h>

#include "proto/base/units.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "sim/catalogue.h"

namespace foreshard::sim {
namespace {

pb::Group MakeGroup(int size, int stride = 1) {
  pb::Group group;
  group.set_size(size);
  group.set_stride(stride);
  return group;
}

// Base 100 s, 1 s a step within a node, 10 s between nodes, 8 B/s links, 4 NICs of 5 B/s at 0.1.
pb::Cluster RoundCluster() {
  pb::Cluster cluster;
  cluster.mutable_node()->set_gpus(8);
  cluster.mutable_node()->set_link_bytes_per_second(8);
  cluster.mutable_node()->set_link_step_seconds(1);
  cluster.mutable_network()->set_nics(4);
  cluster.mutable_network()->set_nic_bytes_per_second(5);
  cluster.mutable_network()->set_efficiency(0.1);
  cluster.mutable_network()->set_step_seconds(10);
  cluster.mutable_host()->set_collective_base_seconds(100);
  return cluster;
}

TEST(NodesSpanned, CountsNodesThatTheWidestGroupTouches) {
  struct Case {
    int size, stride, world, gpus, nodes;
  };
  const Case cases[] = {
      {1, 1, 1, 8, 1},   {8, 1, 8, 8, 1},  {16, 1, 16, 8, 2}, {12, 1, 12, 8, 2},  // 8 + 4
      {6, 1, 24, 8, 2},                     // ranks 6 to 11 lie on two nodes, ranks 0 to 5 on one
      {4, 1, 32, 8, 1},                     // four groups of two per node
      {2, 8, 16, 8, 2},                     // ranks r and r + 8
      {4, 2, 8, 8, 1},                      // every second rank of a node
      {8, 2, 16, 8, 2},  {4, 4, 16, 8, 2},  // 0, 4, 8, 12
      {3, 16, 48, 8, 3},                    // every second node
  };
  for (const Case& c : cases) {
    EXPECT_EQ(NodesSpanned(MakeGroup(c.size, c.stride), c.world, c.gpus), c.nodes)
        << c.size << " by " << c.stride << " of " << c.world << " on nodes of " << c.gpus;
  }
}

TEST(NodesSpanned, AgreesWithCountingRanks) {
  for (int gpus = 1; gpus <= 5; ++gpus) {
    for (int size = 1; size <= 6; ++size) {
      for (int stride = 1; stride <= 6; ++stride) {
        const int world = 2 * size * stride;
        int widest = 0;
        for (int block = 0; block < world; block += size * stride) {
          for (int offset = 0; offset < stride; ++offset) {
            int nodes = 0;
            int last = -1;
            for (int i = 0; i < size; ++i) {
              const int node = (block + offset + i * stride) / gpus;
              nodes += node != last ? 1 : 0;
              last = node;
            }
            widest = std::max(widest, nodes);
          }
        }
        EXPECT_EQ(NodesSpanned(MakeGroup(size, stride), world, gpus), widest)
            << size << " by " << stride << " on nodes of " << gpus;
      }
    }
  }
}

TEST(RingTime, OneNode) {
  // 100 + (8 - 1) * 1 + 7/8 * 64 / 8
  const Ring ring = RingOf(MakeGroup(8), 8, RoundCluster());
  EXPECT_DOUBLE_EQ(RingTime(ring, Bytes(64)).count(), 100 + 7 + 7);
}

TEST(RingTime, NodesAreJoinedByTheirNics) {
  // 16 ranks, 2 nodes: 100 + 14 * 1 + 1 * 10 + 15/16 * 64 / min(8, 4 * 5 * 0.1 = 2)
  const Ring ring = RingOf(MakeGroup(16), 16, RoundCluster());
  EXPECT_DOUBLE_EQ(RingTime(ring, Bytes(64)).count(), 100 + 14 + 10 + 30);
}

TEST(RingTime, AnUnevenLastNodeStillCountsAsANode) {
  // 12 = 8 + 4: 100 + 10 * 1 + 1 * 10 + 11/12 * 48 / 2
  const Ring ring = RingOf(MakeGroup(12), 12, RoundCluster());
  EXPECT_DOUBLE_EQ(RingTime(ring, Bytes(48)).count(), 100 + 10 + 10 + 22);
}

TEST(RingTime, FastNicsLeaveTheLinkAsTheLimit) {
  pb::Cluster cluster = RoundCluster();
  cluster.mutable_network()->set_efficiency(1);  // 20 B/s
  EXPECT_DOUBLE_EQ(RingOf(MakeGroup(16), 16, cluster).bandwidth.count(), 8);
}

TEST(RingTime, InterleavedGroupsShareTheNics) {
  // One rank per node in each of 8 groups: 2 B/s / 8. 100 + 0 * 1 + 1 * 10 + 1/2 * 4 / 0.25
  const Ring ring = RingOf(MakeGroup(2, 8), 16, RoundCluster());
  EXPECT_DOUBLE_EQ(RingTime(ring, Bytes(4)).count(), 100 + 10 + 8);
}

TEST(RingTime, OneRankOrNoBytesCostNothing) {
  EXPECT_EQ(RingTime(RingOf(MakeGroup(1), 8, RoundCluster()), Bytes(1000)), Seconds(0));
  EXPECT_EQ(RingTime(RingOf(MakeGroup(8), 8, RoundCluster()), Bytes(0)), Seconds(0));
}

TEST(AllReduceTime, GoesAroundTwiceButBeginsOnce) {
  // 100 + 2 * (7 + 7/8 * 64 / 8)
  EXPECT_DOUBLE_EQ(AllReduceTime(RingOf(MakeGroup(8), 8, RoundCluster()), Bytes(64)).count(), 128);
  EXPECT_EQ(AllReduceTime(RingOf(MakeGroup(1), 8, RoundCluster()), Bytes(64)), Seconds(0));
  EXPECT_EQ(AllReduceTime(RingOf(MakeGroup(8), 8, RoundCluster()), Bytes(0)), Seconds(0));
}

TEST(AllReduceTime, ReplicasOfWholeNodesMeetOverTheNetwork) {
  // Two nodes of 8 shards: one rank of each node in each of 8 groups, as above.
  // 100 + 2 * (10 + 1/2 * 4 / 0.25)
  const Ring ring = RingOf(MakeGroup(2, 8), 16, RoundCluster());
  EXPECT_DOUBLE_EQ(AllReduceTime(ring, Bytes(4)).count(), 136);
  // Replicas within a node: 2 of 4 shards each. 100 + 2 * (1 + 1/2 * 64 / 8)
  EXPECT_DOUBLE_EQ(AllReduceTime(RingOf(MakeGroup(2, 4), 8, RoundCluster()), Bytes(64)).count(),
                   110);
}

// Reduce-scatter on 8 H100 as published (NVIDIA/nccl issue 1047): MiB and microseconds. Two
// constants fit all sizes within a few per cent.
TEST(RingTime, H100CatalogueReproducesPublishedReduceScatters) {
  const pb::Cluster cluster = LoadCluster("dgx-h100").value();
  const Ring ring = RingOf(MakeGroup(8), 8, cluster);
  const std::pair<int64_t, double> measured[] = {{128, 377.2},   {256, 709.7},   {512, 1377.8},
                                                 {1024, 2689.3}, {2048, 5295.9}, {4096, 10505},
                                                 {8192, 20754}};
  for (const auto& [mib, microseconds] : measured) {
    const double predicted = RingTime(ring, Bytes(mib << 20)).count() * 1e6;
    EXPECT_NEAR(predicted / microseconds, 1, 0.03) << mib << " MiB";
  }
}

}  // namespace
}  // namespace foreshard::sim
