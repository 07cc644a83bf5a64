#include "sim/cluster_check.h"

#include <fmt/core.h>

#include <string_view>

#include "proto/cluster.pb.h"

namespace foreshard {
namespace {

struct Field {
  std::string_view name;
  double value = 0;
};

// All comparisons are written so that NaN fails them.
Status Positive(Field f) {
  if (f.value > 0 && f.value < 1e300) return OkStatus();
  return InvalidInput(fmt::format("{} is {}, must be positive", f.name, f.value));
}

Status Latency(Field f) {
  if (f.value >= 0 && f.value <= 1) return OkStatus();
  return InvalidInput(fmt::format("{} is {}, must be between 0 and 1 second", f.name, f.value));
}

Status Share(Field f) {
  if (f.value > 0 && f.value <= 1) return OkStatus();
  return InvalidInput(
      fmt::format("{} is {}, must be greater than 0 and at most 1", f.name, f.value));
}

Status CheckGpu(const pb::Gpu& gpu) {
  const Field positive[] = {
      {"gpu.sms", static_cast<double>(gpu.sms())},
      {"gpu.memory_bytes", static_cast<double>(gpu.memory_bytes())},
      {"gpu.bf16_flops_per_second", gpu.bf16_flops_per_second()},
      {"gpu.fp32_flops_per_second", gpu.fp32_flops_per_second()},
      {"gpu.memory_bytes_per_second", gpu.memory_bytes_per_second()},
  };
  for (const Field& field : positive) RETURN_IF_ERROR(Positive(field));
  const Field shares[] = {
      {"gpu.efficiency.matmul", gpu.efficiency().matmul()},
      {"gpu.efficiency.attention", gpu.efficiency().attention()},
      {"gpu.efficiency.memory", gpu.efficiency().memory()},
  };
  for (const Field& field : shares) RETURN_IF_ERROR(Share(field));
  if (gpu.reserve_bytes() < 0 || gpu.reserve_bytes() >= gpu.memory_bytes()) {
    return InvalidInput(
        fmt::format("gpu.reserve_bytes is {}, must be at least 0 and less than gpu.memory_bytes",
                    gpu.reserve_bytes()));
  }
  return OkStatus();
}

Status CheckNodes(const pb::Cluster& cluster) {
  if (cluster.node().gpus() < 1) {
    return InvalidInput(fmt::format("node.gpus is {}, must be at least 1", cluster.node().gpus()));
  }
  if (cluster.has_nodes() && cluster.nodes() < 1) {
    return InvalidInput(fmt::format("nodes is {}, must be at least 1 or absent", cluster.nodes()));
  }
  RETURN_IF_ERROR(Positive({"node.link_bytes_per_second", cluster.node().link_bytes_per_second()}));
  RETURN_IF_ERROR(Latency({"node.link_step_seconds", cluster.node().link_step_seconds()}));
  // A machine that stays alone needs no network.
  if (cluster.has_nodes() && cluster.nodes() == 1 && !cluster.has_network()) return OkStatus();
  const pb::Network& network = cluster.network();
  RETURN_IF_ERROR(Positive({"network.nics", static_cast<double>(network.nics())}));
  RETURN_IF_ERROR(Positive({"network.nic_bytes_per_second", network.nic_bytes_per_second()}));
  RETURN_IF_ERROR(Share({"network.efficiency", network.efficiency()}));
  return Latency({"network.step_seconds", network.step_seconds()});
}

}  // namespace

Status CheckCluster(const pb::Cluster& cluster) {
  RETURN_IF_ERROR(CheckGpu(cluster.gpu()));
  RETURN_IF_ERROR(CheckNodes(cluster));
  const pb::Host& host = cluster.host();
  const Field latencies[] = {
      {"host.launch_seconds", host.launch_seconds()},
      {"host.collective_seconds", host.collective_seconds()},
      {"host.kernel_seconds", host.kernel_seconds()},
      {"host.collective_base_seconds", host.collective_base_seconds()},
  };
  for (const Field& field : latencies) RETURN_IF_ERROR(Latency(field));
  // Only plans that use the host's memory need these.
  const Field rates[] = {
      {"host.copy_bytes_per_second", host.copy_bytes_per_second()},
      {"host.memory_bytes_per_second", host.memory_bytes_per_second()},
  };
  for (const Field& field : rates) {
    if (field.value != 0) RETURN_IF_ERROR(Positive(field));
  }
  return OkStatus();
}

}  // namespace foreshard
