#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/checkpoint.h"
#include "planner/decide_optimizer.h"
#include "planner/decide_strategy.h"
#include "planner/decisions.h"
#include "planner/flat_units.h"
#include "planner/graph/analysis.h"
#include "planner/lower/facts.h"
#include "planner/lower/step.h"
#include "planner/pick.h"
#include "planner/prefetch_ahead.h"
#include "planner/unit_rules.h"
#include "planner/validate.h"
#include "planner/wrap_policy.h"
#include "proto/base/text.h"
#include "proto/oplib/workspace.h"
#include "proto/plan_check.h"
#include "proto/strategy.h"

namespace foreshard {
namespace {

StatusOr<AttentionChoice> DecideAttention(const PlanRequest& r, const KernelProfile& profile,
                                          DType compute, const ModelGraph& graph) {
  AttentionNeeds needs{.dtype = compute};
  for (const GraphOp& op : graph.ops) {
    if (op.kind != OpKind::kAttention) continue;
    needs.grouped |= op.grouped;
    needs.head_dim = std::max(needs.head_dim, graph.values[op.in[0]].shape[3]);
    // Where the model itself names a kernel, that one has to drop.
    if (op.backend.empty()) needs.drops |= op.p > 0;
    if (op.backend != "flash" || op.p == 0) continue;
    const AttentionNeeds drops{.dtype = compute, .drops = true};
    RETURN_IF_ERROR(ChooseAttention(profile, op.backend, drops).status());
  }
  return ChooseAttention(profile, r.attention, needs);
}

void DecideDTypes(const PlanRequest& r, StepDecisions& d) {
  d.original = r.original_dtype;
  const DType compute = r.param_dtype.value_or(r.original_dtype);
  d.forward.compute = compute;
  const DType fallback = d.behaviour.reduces_in_original_dtype ? d.original : compute;
  d.reduce = r.reduce_dtype.value_or(fallback);
  d.forward.casts_inputs = r.cast_forward_inputs && r.param_dtype.has_value();
  d.forward.output = r.output_dtype;
}

void DecideReductions(const PlanRequest& r, StepDecisions& d) {
  d.reduce_inputs = r.reduce_input_buffers;
  d.divide_factor = r.gradient_divide_factor;
  d.force_sum = r.force_sum_reduction;
  d.separate_reduce_group = r.separate_reduce_group;
  d.offloads = r.cpu_offload;
}

void DecideMicroBatches(const MicroBatchRequest& r, StepDecisions& d) {
  d.micro_batches = r.count;
  d.before_last.reduces = r.reduce;
  d.before_last.reshards = r.reshard_after_backward.value_or(true);
  d.before_last.all_reduces = r.all_reduce;
  d.before_last.is_last = r.last_backward;
}

// Operators as the op library names them: "aten.mm.default" is "mm", "aten.sum.dim_IntList" has its
// overload.
std::string OperatorName(std::string name) {
  constexpr std::string_view kSpace = "aten.";
  constexpr std::string_view kDefault = ".default";
  if (name.starts_with(kSpace)) name.erase(0, kSpace.size());
  if (name.ends_with(kDefault)) name.erase(name.size() - kDefault.size());
  return name;
}

Status DecideCheckpoint(const ModelGraph& graph, const std::string& block_class,
                        const CheckpointRequest& r, StepDecisions& d) {
  ASSIGN_OR_RETURN(d.forward.checkpointed, CheckpointModules(graph, block_class, r));
  d.forward.checkpoints_outside = r.outside_unit;
  CheckpointRule& rule = d.forward.checkpoint;
  rule.reentrant = r.reentrant;
  rule.early_stop = r.early_stop;
  rule.every_second_mm = r.save_every_second_matmul;
  for (const std::string& name : r.save_ops) rule.kept.push_back(OperatorName(name));
  return OkStatus();
}

StatusOr<StepDecisions> Decide(const PlanRequest& r, const ModelGraph& graph) {
  StepDecisions d;
  ASSIGN_OR_RETURN(d.behaviour, BehaviourOf(r.torch));
  ASSIGN_OR_RETURN(d.forward.profile, FindProfile(r.kernel_profile));
  DecideDTypes(r, d);
  RETURN_IF_ERROR(DecideStrategy(r, d));
  DecideReductions(r, d);
  DecideMicroBatches(r.micro_batches, d);
  ASSIGN_OR_RETURN(d.optimizer, DecideOptimizer(r));
  ASSIGN_OR_RETURN(d.clip, DecideClip(r));
  ASSIGN_OR_RETURN(d.loss,
                   Pick<pb::LossKind>("loss", r.loss,
                                      {{"cross_entropy_fp32", pb::CROSS_ENTROPY_FP32},
                                       {"cross_entropy", pb::CROSS_ENTROPY},
                                       {"sum_fp32", pb::SUM_FP32},
                                       {"cross_entropy_in_model", pb::CROSS_ENTROPY_IN_MODEL}}));
  ASSIGN_OR_RETURN(d.forward.attention,
                   DecideAttention(r, *d.forward.profile, d.forward.compute, graph));
  if (!oplib::WorkspaceBytes("cublas", r.arch)) {
    return InvalidArgument(
        fmt::format("arch: \"{}\" is none; expected something like sm80 or sm100", r.arch));
  }
  d.arch = r.arch;
  return d;
}

// Byte counts stay far inside 64 bits.
Status CheckExtents(const ModelGraph& graph, const StepDecisions& d) {
  constexpr double kMaxElements = 1e15;
  const auto check = [&](double elements, const std::string& what) {
    if (elements <= kMaxElements) return OkStatus();
    return InvalidArgument(fmt::format(
        "seq: {} would have {:.3g} elements, more than {:.0g}; lower seq or micro-batch", what,
        elements, kMaxElements));
  };
  for (const GraphOp& op : graph.ops) {
    const std::string& where = graph.modules[op.module].path;
    for (ValueId v : op.out) {
      double elements = 1;
      for (int64_t size : graph.values[v].shape) elements *= static_cast<double>(size);
      RETURN_IF_ERROR(check(elements, "a tensor of " + where));
    }
    if (op.kind != OpKind::kAttention) continue;
    const Dims& q = graph.values[op.in[0]].shape;
    const double rows = static_cast<double>(q[0]) * static_cast<double>(q[1]);
    const double scores = rows * static_cast<double>(q[2]) * static_cast<double>(q[2]);
    const std::string& kernel = op.backend.empty() ? d.forward.attention.name : op.backend;
    if (kernel == "math") RETURN_IF_ERROR(check(scores, "attention scores of " + where));
  }
  return OkStatus();
}

// A unit of several modules opens with the first of them and closes with the last.
Status CheckUnitsRun(const ModelGraph& graph, const std::vector<Unit>& units) {
  std::vector<int> runs(graph.modules.size(), 0);
  for (const GraphItem& item : graph.items) {
    if (item.kind == GraphItem::Kind::kEnter) ++runs[item.index];
  }
  for (const Unit& unit : units) {
    for (int m : unit.modules) {
      if (runs[m] == 1 || (runs[m] > 1 && unit.modules.size() == 1)) continue;
      return InvalidArgument(fmt::format(
          "wrap: module \"{}\" runs {} times in a forward; a module of a unit of several must run "
          "once, and any other at least once",
          graph.modules[m].path, runs[m]));
    }
  }
  return OkStatus();
}

// The calls that make units: without shards there is one, of the whole model.
StatusOr<std::vector<WrapRequest>> CallsOf(const ModelGraph& graph, const std::string& block_class,
                                           const PlanRequest& request, pb::Strategy strategy) {
  if (!IsReplicated(strategy)) return WrapCalls(graph, block_class, request);
  return std::vector<WrapRequest>{{{""}, false}};
}

// A reentrant region whose inputs need no gradient leaves none for its parameters, which DDP then
// waits for in vain.
Status CheckGradientsArrive(const ModelGraph& graph, const StepDecisions& d) {
  if (!IsReplicated(d.strategy) || !d.forward.checkpoint.reentrant) return OkStatus();
  const auto needed = ValuesNeedingGrad(graph);
  for (const GraphItem& item : graph.items) {
    if (item.kind != GraphItem::Kind::kEnter) continue;
    if (std::ranges::find(d.forward.checkpointed, item.index) == d.forward.checkpointed.end()) {
      continue;
    }
    if (std::ranges::any_of(item.values, [&](ValueId v) { return needed[v]; })) continue;
    return InvalidArgument(fmt::format(
        "checkpoint: no input of {} needs a gradient, so that reentrant recomputation leaves none "
        "for its parameters, and DDP does not go on; use one that is not reentrant",
        graph.modules[item.index].path));
  }
  return OkStatus();
}

Status CheckParametersAreUsed(const ModelGraph& graph) {
  if (const int unused = UnusedParameter(graph); unused != kNone) {
    return InvalidInput(
        fmt::format("model: its output does not depend on parameter {}; unused parameters are not "
                    "modelled yet",
                    graph.parameters[unused].path));
  }
  return OkStatus();
}

Status CheckModel(const pb::Model& model, const ModelGraph& graph, const StepDecisions& d) {
  RETURN_IF_ERROR(CheckExtents(graph, d));
  RETURN_IF_ERROR(CheckFacts(model, graph));
  if (graph.outputs.empty()) return InvalidInput("model: returns nothing");
  if (!ValuesNeedingGrad(graph)[graph.outputs[0]]) {
    return InvalidInput("model: its output does not depend on a trainable parameter");
  }
  const Dims& output = graph.values[graph.outputs[0]].shape;
  const bool cross_entropy = d.loss != pb::SUM_FP32;
  if (cross_entropy && Numel(output) != graph.batch * graph.seq * output.back()) {
    return InvalidInput("model: cross entropy needs one row of logits for each token");
  }
  return OkStatus();
}

void FillHeader(const pb::Model& model, const ModelGraph& graph, pb::Header& header) {
  header.set_format_version(kPlanFormatVersion);
  header.set_tool_version(FORESHARD_VERSION);
  header.set_model_name(model.name());
  header.set_model_hash(Fnv1a64(model.SerializeAsString()));
  int64_t numel = 0;
  for (const GraphParameter& p : graph.parameters) numel += Numel(p.shape);
  header.set_parameter_count(numel);
  header.set_model_flops(3 * ForwardMatmulFlops(graph));
}

}  // namespace

std::string Describe(const std::optional<Reshard>& reshard) {
  if (!reshard) return "";
  if (reshard->ranks == Reshard::kAll) return "true";
  return reshard->ranks == 1 ? "false" : fmt::to_string(reshard->ranks);
}

StatusOr<pb::Plan> MakePlan(const pb::Model& model, const PlanRequest& asked) {
  RETURN_IF_ERROR(CheckRequest(asked));
  PlanRequest request = asked;
  ASSIGN_OR_RETURN(const ModelGraph graph,
                   BuildModelGraph(model, request.micro_batch, request.seq));
  ASSIGN_OR_RETURN(StepDecisions decisions, Decide(request, graph));
  RETURN_IF_ERROR(CheckModel(model, graph, decisions));
  ASSIGN_OR_RETURN(const std::vector<WrapRequest> calls,
                   CallsOf(graph, model.block_class(), request, decisions.strategy));
  ASSIGN_OR_RETURN(const std::vector<Unit> units,
                   IsFsdp1(decisions.strategy)
                       ? MakeFlatUnits(graph, calls, decisions.fsdp1.use_orig_params())
                       : MakeUnits(graph, calls));
  RETURN_IF_ERROR(CheckUnitsRun(graph, units));
  ListPrefetchAhead(graph, units, request);
  ASSIGN_OR_RETURN(decisions.units,
                   DecideUnits(graph, units, request, decisions.behaviour, decisions.shard_ranks));
  if (IsFsdp1(decisions.strategy)) {
    decisions.units = FlatUnitRules(units, decisions.strategy);
  }
  RETURN_IF_ERROR(DecideCheckpoint(graph, model.block_class(), request.checkpoint, decisions));
  if (IsFsdp1(decisions.strategy)) {
    RETURN_IF_ERROR(CheckReentrant(graph, units, decisions.forward));
  }
  ASSIGN_OR_RETURN(decisions.shard_dims,
                   DecideShardDims(graph, decisions.units, request, decisions.shard_ranks));
  RETURN_IF_ERROR(CheckOptimizer(graph, decisions));
  RETURN_IF_ERROR(CheckPartsAreShards(units, decisions.units, decisions.shard_dims));
  RETURN_IF_ERROR(CheckParametersAreUsed(graph));
  RETURN_IF_ERROR(CheckGradientsArrive(graph, decisions));
  pb::Plan plan;
  FillHeader(model, graph, *plan.mutable_header());
  RecordDecisions(request, decisions, calls, graph, *plan.mutable_decisions());
  plan.mutable_mesh()->set_world_size(request.world_size);
  plan.mutable_mesh()->set_shard_size(decisions.shard_ranks);
  plan.mutable_mesh()->set_replicate_size(decisions.replicas);
  LowerStep(model, graph, units, decisions, plan);
  return plan;
}

}  // namespace foreshard
