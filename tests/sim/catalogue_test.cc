#include "sim/catalogue.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "proto/cluster.pb.h"
#include "proto/io.h"
#include "sim/cluster_check.h"

namespace foreshard {
namespace {

using ::testing::HasSubstr;

TEST(Catalogue, HasTheNodeTypesThatTheCommandLineNames) {
  EXPECT_THAT(CatalogueClusters(), testing::ElementsAre("dgx-a100-40g", "dgx-a100-80g", "dgx-b200",
                                                        "dgx-h100", "dgx-h200"));
}

TEST(Catalogue, EveryEntryIsValidAndCalledByItsName) {
  for (const std::string& name : CatalogueClusters()) {
    const auto cluster = LoadCluster(name);
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    EXPECT_EQ(cluster->name(), name);
    EXPECT_FALSE(cluster->has_nodes()) << "catalogue entries are node types";
    EXPECT_EQ(cluster->node().gpus(), 8);
  }
}

// Bounds that hold whatever is measured: a wrong unit is off by far more.
TEST(Catalogue, NumbersAreOfTheRightMagnitude) {
  for (const std::string& name : CatalogueClusters()) {
    const pb::Cluster cluster = LoadCluster(name).value();
    const pb::Gpu& gpu = cluster.gpu();
    EXPECT_GT(gpu.bf16_flops_per_second(), 3e14) << name;
    EXPECT_LT(gpu.bf16_flops_per_second(), 3e15) << name;
    EXPECT_GT(gpu.bf16_flops_per_second() / gpu.fp32_flops_per_second(), 10) << name;
    EXPECT_GT(gpu.memory_bytes_per_second(), 1.5e12) << name;
    EXPECT_LE(gpu.memory_bytes_per_second(), 8e12) << name;
    EXPECT_GT(gpu.memory_bytes(), int64_t{39} << 30) << name;
    EXPECT_LT(gpu.memory_bytes(), int64_t{180} << 30) << name;
    EXPECT_LT(gpu.reserve_bytes(), gpu.memory_bytes() / 10) << name;
    EXPECT_GT(cluster.node().link_bytes_per_second(), cluster.network().nic_bytes_per_second())
        << name;
    EXPECT_GT(cluster.network().step_seconds(), cluster.node().link_step_seconds()) << name;
    EXPECT_LT(cluster.host().kernel_seconds(), cluster.host().launch_seconds()) << name;
  }
}

TEST(Catalogue, LaterGenerationsAreFaster) {
  const char* const order[] = {"dgx-a100-40g", "dgx-a100-80g", "dgx-h100", "dgx-h200", "dgx-b200"};
  for (int i = 1; i < 5; ++i) {
    const pb::Gpu before = LoadCluster(order[i - 1]).value().gpu();
    const pb::Gpu after = LoadCluster(order[i]).value().gpu();
    EXPECT_LT(before.memory_bytes_per_second(), after.memory_bytes_per_second()) << order[i];
    EXPECT_LE(before.bf16_flops_per_second() * before.efficiency().matmul(),
              after.bf16_flops_per_second() * after.efficiency().matmul())
        << order[i];
  }
}

TEST(Catalogue, AnUnknownNameIsAnsweredWithTheNearestAndAll) {
  const Status status = LoadCluster("dgx-h1000").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("did you mean dgx-h100?"));
  EXPECT_THAT(status.message(), HasSubstr("dgx-a100-40g, dgx-a100-80g, dgx-b200"));
}

TEST(Catalogue, ANameWithASuffixIsAFile) {
  pb::Cluster cluster = LoadCluster("dgx-h100").value();
  cluster.set_name("ours");
  cluster.set_nodes(2);
  const std::string path = testing::TempDir() + "/ours.textproto";
  ASSERT_TRUE(WriteMessage(path, cluster).ok());
  const auto loaded = LoadCluster(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*loaded, cluster));
}

TEST(Catalogue, AMissingFileIsNotFound) {
  EXPECT_EQ(LoadCluster("none/such.textproto").status().code(), StatusCode::kNotFound);
}

TEST(CheckCluster, NamesTheFieldThatIsWrong) {
  struct Case {
    std::function<void(pb::Cluster&)> spoil;
    std::string message;
  };
  const Case cases[] = {
      {[](auto& c) { c.mutable_gpu()->set_sms(0); }, "gpu.sms is 0"},
      {[](auto& c) { c.mutable_gpu()->set_memory_bytes(-1); }, "gpu.memory_bytes is -1"},
      {[](auto& c) { c.mutable_gpu()->set_bf16_flops_per_second(0); },
       "gpu.bf16_flops_per_second is 0"},
      {[](auto& c) { c.mutable_gpu()->set_fp32_flops_per_second(NAN); },
       "gpu.fp32_flops_per_second is nan"},
      {[](auto& c) { c.mutable_gpu()->set_memory_bytes_per_second(INFINITY); },
       "gpu.memory_bytes_per_second is inf"},
      {[](auto& c) { c.mutable_gpu()->mutable_efficiency()->set_matmul(1.5); },
       "gpu.efficiency.matmul is 1.5, must be greater than 0 and at most 1"},
      {[](auto& c) { c.mutable_gpu()->mutable_efficiency()->set_attention(0); },
       "gpu.efficiency.attention is 0"},
      {[](auto& c) { c.mutable_gpu()->clear_efficiency(); }, "gpu.efficiency.matmul is 0"},
      {[](auto& c) { c.mutable_gpu()->set_reserve_bytes(int64_t{1} << 40); }, "gpu.reserve_bytes"},
      {[](auto& c) { c.mutable_node()->set_gpus(0); }, "node.gpus is 0, must be at least 1"},
      {[](auto& c) { c.mutable_node()->set_link_bytes_per_second(0); },
       "node.link_bytes_per_second is 0"},
      {[](auto& c) { c.mutable_node()->set_link_step_seconds(-1); },
       "node.link_step_seconds is -1"},
      {[](auto& c) { c.clear_network(); }, "network.nics is 0"},
      {[](auto& c) { c.mutable_network()->set_efficiency(2); }, "network.efficiency is 2"},
      {[](auto& c) { c.mutable_host()->set_launch_seconds(NAN); }, "host.launch_seconds is nan"},
      {[](auto& c) { c.mutable_host()->set_kernel_seconds(2); }, "host.kernel_seconds is 2"},
      {[](auto& c) { c.mutable_host()->set_copy_bytes_per_second(-1); },
       "host.copy_bytes_per_second is -1"},
      {[](auto& c) { c.mutable_host()->set_memory_bytes_per_second(NAN); },
       "host.memory_bytes_per_second is nan"},
      {[](auto& c) { c.set_nodes(0); }, "nodes is 0"},
  };
  for (const Case& c : cases) {
    pb::Cluster cluster = LoadCluster("dgx-h100").value();
    c.spoil(cluster);
    const Status status = CheckCluster(cluster);
    EXPECT_EQ(status.code(), StatusCode::kInvalidInput) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

// Plans that leave the host's memory alone do without.
TEST(CheckCluster, RatesOfTheHostMayBeUnknown) {
  pb::Cluster cluster = LoadCluster("dgx-h100").value();
  cluster.mutable_host()->clear_copy_bytes_per_second();
  cluster.mutable_host()->clear_memory_bytes_per_second();
  EXPECT_TRUE(CheckCluster(cluster).ok());
}

TEST(CheckCluster, ASingleNodeNeedsNoNetwork) {
  pb::Cluster cluster = LoadCluster("dgx-h100").value();
  cluster.clear_network();
  cluster.set_nodes(1);
  EXPECT_TRUE(CheckCluster(cluster).ok());
}

}  // namespace
}  // namespace foreshard
