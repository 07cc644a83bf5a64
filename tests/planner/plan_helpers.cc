#include "tests/planner/plan_helpers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/base/check.h"
#include "proto/cluster.pb.h"
#include "proto/plan_check.h"
#include "sim/catalogue.h"
#include "sim/simulate.h"

namespace foreshard {
namespace {

const pb::Segment& StepOf(const pb::Plan& plan) {
  for (const pb::Segment& segment : plan.segments()) {
    if (segment.name() == "step" || segment.name() == "steady/step") return segment;
  }
  CHECK(false) << "no step";
  return plan.segments(0);
}

}  // namespace

PlanRequest SmallRequest(int world) {
  PlanRequest request;
  request.world_size = world;
  request.micro_batch = 1;
  request.seq = 4;
  request.kernel_profile = "torch-cpu";
  request.param_dtype = DType::kFp32;
  request.reduce_dtype = DType::kFp32;
  request.optimizer = "none";
  request.loss = "sum_fp32";
  return request;
}

pb::Plan PlanOf(const pb::Model& model, const PlanRequest& request) {
  StatusOr<pb::Plan> plan = MakePlan(model, request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return {};
  const Status status = CheckPlan(*plan);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(plan).value();
}

pb::Report ReportOf(const pb::Plan& plan) {
  const StatusOr<pb::Cluster> cluster = LoadCluster("dgx-a100-80g");
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  StatusOr<pb::Report> report = Simulate(plan, *cluster);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? std::move(report).value() : pb::Report();
}

std::vector<std::string> Collectives(const pb::Plan& plan, pb::Phase phase) {
  std::vector<std::string> names;
  for (const pb::Op& op : StepOf(plan).ops()) {
    if (op.phase() != phase || !(op.has_all_gather() || op.has_reduce_scatter())) continue;
    names.push_back((op.has_all_gather() ? "AG " : "RS ") + plan.units(op.unit()).name());
  }
  return names;
}

std::vector<pb::AllGather> Gathers(const pb::Plan& plan, const std::string& unit) {
  std::vector<pb::AllGather> found;
  for (const pb::Op& op : StepOf(plan).ops()) {
    if (op.has_all_gather() && plan.units(op.unit()).name() == unit) {
      found.push_back(op.all_gather());
    }
  }
  return found;
}

std::vector<pb::ReduceScatter> Reductions(const pb::Plan& plan, const std::string& unit) {
  std::vector<pb::ReduceScatter> found;
  for (const pb::Op& op : StepOf(plan).ops()) {
    if (op.has_reduce_scatter() && plan.units(op.unit()).name() == unit) {
      found.push_back(op.reduce_scatter());
    }
  }
  return found;
}

void ForEachStepOp(const pb::Plan& plan, const std::function<void(const pb::Op&, int)>& visit) {
  if (plan.programs().empty()) return;
  for (const pb::SegmentUse& use : plan.programs(plan.programs_size() - 1).uses()) {
    for (int i = 0; i < use.repeat(); ++i) {
      for (const pb::Op& op : plan.segments(use.segment()).ops()) visit(op, op.micro_batch() + i);
    }
  }
}

std::vector<std::string> StepCollectives(const pb::Plan& plan, int micro_batch, pb::Phase phase) {
  std::vector<std::string> names;
  ForEachStepOp(plan, [&](const pb::Op& op, int of) {
    if (of != micro_batch || op.phase() != phase) return;
    const char* kind = op.has_all_gather()       ? "AG"
                       : op.has_reduce_scatter() ? "RS"
                       : op.has_all_reduce()     ? "AR"
                                                 : nullptr;
    if (!kind) return;
    names.push_back(op.has_unit() ? fmt::format("{} {}", kind, plan.units(op.unit()).name())
                                  : kind);
  });
  return names;
}

void WalkPlan(const pb::Plan& plan, const std::function<void(const Moment&)>& issued) {
  std::vector<bool> alive(plan.buffers_size(), false);
  for (int b : plan.resident()) alive[b] = true;
  for (const pb::Program& program : plan.programs()) {
    for (const pb::SegmentUse& use : program.uses()) {
      for (int repetition = 0; repetition < use.repeat(); ++repetition) {
        for (const pb::Op& op : plan.segments(use.segment()).ops()) {
          for (int b : op.allocs()) alive[b] = true;
          issued({&program.name(), &op, &alive});
          for (int b : op.frees()) alive[b] = false;
        }
      }
    }
  }
}

std::vector<int> AliveAfterForward(const pb::Plan& plan) {
  std::vector<int> alive;
  bool forward = true;
  WalkPlan(plan, [&](const Moment& m) {
    if (!forward) return;
    // At the first op of the backward, less what it allocates.
    if (m.op->phase() != pb::BACKWARD) return;
    forward = false;
    for (int b = 0; b < plan.buffers_size(); ++b) {
      const auto& fresh = m.op->allocs();
      if ((*m.alive)[b] && std::find(fresh.begin(), fresh.end(), b) == fresh.end()) {
        alive.push_back(b);
      }
    }
  });
  return alive;
}

std::map<pb::Category, int64_t> CountedBytes(
    const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& categories) {
  std::map<pb::Category, int64_t> bytes;
  for (const pb::CategoryBytes& c : categories) {
    const bool counted = c.category() != pb::INPUT && c.category() != pb::MODULE_BUFFER &&
                         c.category() != pb::WORKSPACE;
    if (counted && c.bytes() != 0) bytes[c.category()] += c.bytes();
  }
  return bytes;
}

int64_t CountedTotal(const google::protobuf::RepeatedPtrField<pb::CategoryBytes>& categories) {
  int64_t total = 0;
  for (const auto& [category, bytes] : CountedBytes(categories)) total += bytes;
  return total;
}

const pb::PhaseMemory& PhaseOf(const pb::Report& report, const std::string& program,
                               pb::Phase phase) {
  for (const pb::PhaseMemory& p : report.phases()) {
    if (p.program() == program && p.phase() == phase) return p;
  }
  CHECK(false) << "no phase " << pb::Phase_Name(phase) << " of " << program;
  return report.phases(0);
}

}  // namespace foreshard
