// What tests of plans ask of them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/report.pb.h"

namespace foreshard {

// `world` ranks and few tokens; fp32 everywhere, no optimizer, the sum as loss, torch-cpu.
PlanRequest SmallRequest(int world);

// The plan, which passes CheckPlan; anything else fails the test and gives an empty plan.
pb::Plan PlanOf(const pb::Model& model, const PlanRequest& request);

// The prediction on a node of eight GPUs; fails the test where there is none.
pb::Report ReportOf(const pb::Plan& plan);

// The step's collectives of a phase in issue order: "AG layers.0", "RS <root>".
std::vector<std::string> Collectives(const pb::Plan& plan, pb::Phase phase);

// The step's all-gathers or reduce-scatters of a unit.
std::vector<pb::AllGather> Gathers(const pb::Plan& plan, const std::string& unit);
std::vector<pb::ReduceScatter> Reductions(const pb::Plan& plan, const std::string& unit);

// Every op of the steady step with the micro-batch it is issued in.
void ForEachStepOp(const pb::Plan& plan,
                   const std::function<void(const pb::Op&, int micro_batch)>& visit);

// The collectives of one micro-batch of the steady step in a phase, in issue order: as
// Collectives(), and "AR layers.0" over replicas, "AR" of what belongs to no unit.
std::vector<std::string> StepCollectives(const pb::Plan& plan, int micro_batch, pb::Phase phase);

// Lives of buffers, op by op as the plan lists them.
struct Moment {
  const std::string* program = nullptr;
  const pb::Op* op = nullptr;
  const std::vector<bool>* alive = nullptr;  // per buffer
};
// Calls back when each op has been issued, with its allocations and before its frees.
void WalkPlan(const pb::Plan& plan, const std::function<void(const Moment&)>& issued);

// Buffers alive when the forward of the program `first` has ended.
std::vector<int> AliveAfterForward(const pb::Plan& plan);

// Bytes by category, without those that no sharding library counts: inputs, buffers, workspaces.
std::map<pb::Category, int64_t> CountedBytes(
    const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& categories);
int64_t CountedTotal(const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& categories);

// A phase of a program of the report. REQUIRES: there is one.
const pb::PhaseMemory& PhaseOf(const pb::Report& report, const std::string& program,
                               pb::Phase phase);

}  // namespace foreshard
