#include "exec/cpu/backend.h"

#include "exec/cpu/device.h"
#include "exec/cpu/kernel.h"
#include "proto/plan.pb.h"

namespace foreshard::exec {
namespace {

std::vector<GroupShape> ShapesOf(const pb::Plan& plan) {
  std::vector<GroupShape> shapes;
  for (const pb::Group& group : plan.groups()) shapes.push_back({group.size(), group.stride()});
  return shapes;
}

}  // namespace

CpuBackend::CpuBackend(const pb::Plan& plan, bool poisons, FailureFlag& failure)
    : poisons_(poisons),
      failure_(failure),
      world_(plan.mesh().world_size(), ShapesOf(plan), failure) {
  InitCpuKernels();
}

std::unique_ptr<Device> CpuBackend::MakeDevice(int, const PreparedPlan& plan, int streams) {
  return std::make_unique<CpuDevice>(plan, streams, poisons_, failure_);
}

std::unique_ptr<Communicator> CpuBackend::MakeCommunicator(int rank) {
  return std::make_unique<CpuCommunicator>(rank, world_);
}

}  // namespace foreshard::exec
