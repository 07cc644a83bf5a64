// First-order costs: a kernel takes as long as its arithmetic or its memory traffic, whichever is
// longer; collectives are rings (docs/model.md, "Roofline" and "Collectives").
#pragma once

#include <vector>

#include "proto/base/units.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "sim/cost/collective.h"
#include "sim/cost/cost_model.h"

namespace foreshard::sim {

// Peak of the matrix units at an element type. REQUIRES: a floating-point type.
FlopsPerSecond PeakFlops(const pb::Gpu& gpu, pb::DType dtype);

class RooflineModel final : public CostModel {
 public:
  // REQUIRES: CheckPlan(plan) is OK, the cluster is valid and has rates of the host if the plan
  // uses it, and both outlive the model.
  RooflineModel(const pb::Plan& plan, const pb::Cluster& cluster);

  OpCost Price(const pb::Op& op) const override;

  // Device time of a kernel, of moving `moved` bytes through device memory, of a collective.
  Seconds KernelTime(const pb::Kernel& kernel) const;
  Seconds CopyTime(Bytes moved) const;
  // ... of moving `moved` bytes between device and host. REQUIRES: the cluster says how fast.
  Seconds LinkTime(Bytes moved) const;
  Seconds CollectiveTime(int group, Bytes full) const;

 private:
  Seconds DeviceTime(const pb::Op& op) const;
  Seconds HostTime(const pb::Op& op) const;
  Seconds OptimizerTime(const pb::Op& op) const;
  Bytes UpdateBytes(const pb::Op& op) const;
  Bytes Total(const google::protobuf::RepeatedField<int32_t>& buffers) const;

  const pb::Plan& plan_;
  const pb::Cluster& cluster_;
  std::vector<Ring> rings_;            // of the plan's groups
  std::vector<Seconds> kernel_times_;  // of the plan's kernels
  int trainable_ = 0;                  // parameters
};

}  // namespace foreshard::sim
