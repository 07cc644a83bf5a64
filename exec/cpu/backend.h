// N ranks as threads of this process.
#pragma once

#include <memory>

#include "exec/cpu/communicator.h"
#include "exec/device.h"
#include "exec/failure.h"

namespace foreshard::pb {
class Plan;
}

namespace foreshard::exec {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const pb::Plan& plan, bool poisons, FailureFlag& failure);
  std::unique_ptr<Device> MakeDevice(int rank, const PreparedPlan& plan, int streams) override;
  std::unique_ptr<Communicator> MakeCommunicator(int rank) override;

 private:
  const bool poisons_;
  FailureFlag& failure_;
  CpuWorld world_;
};

}  // namespace foreshard::exec
