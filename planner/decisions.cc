#include "planner/decisions.h"

#include <fmt/format.h>

#include <charconv>

#include "planner/assumptions.h"
#include "proto/strategy.h"

namespace foreshard {
namespace {

constexpr const char* kExplicit = "explicit";

// ---- to the message

void RecordWrap(const std::vector<WrapRequest>& calls, pb::Decisions& out) {
  for (const WrapRequest& call : calls) {
    pb::WrapCall& w = *out.add_wrap();
    for (const std::string& m : call.modules) w.add_modules(m);
    if (!call.reshard_after_forward) continue;
    w.set_reshard_after_forward(call.reshard_after_forward->ranks != 1);
    if (call.reshard_after_forward->ranks > 1) w.set_reshard_to(call.reshard_after_forward->ranks);
  }
}

void RecordClasses(const std::optional<std::vector<std::string>>& classes,
                   pb::ClassSet* (pb::Decisions::*field)(), pb::Decisions& out) {
  if (!classes) return;
  pb::ClassSet& set = *(out.*field)();
  for (const std::string& name : *classes) set.add_classes(name);
}

// Of the libraries, the options of the one that was chosen.
void RecordStrategy(const PlanRequest& r, const StepDecisions& d, pb::Decisions& out) {
  const pb::Strategy strategy = ParseStrategy(r.strategy).value();
  out.set_strategy(strategy);
  if (IsFsdp1(strategy)) *out.mutable_fsdp1() = d.fsdp1;
  if (IsReplicated(strategy)) *out.mutable_ddp() = d.ddp;
  RecordClasses(r.force_leaf_modules, &pb::Decisions::mutable_force_leaf_modules, out);
  RecordClasses(r.exclude_wrap_modules, &pb::Decisions::mutable_exclude_wrap_modules, out);
}

void RecordMicroBatches(const MicroBatchRequest& r, pb::MicroBatches& out) {
  out.set_count(r.count);
  out.set_reduce_in_last_only(!r.reduce);
  out.set_keep_after_backward(!r.reshard_after_backward.value_or(true));
  out.set_all_reduce_in_last_only(!r.all_reduce);
  out.set_last_backward_in_last_only(!r.last_backward);
}

void RecordCheckpoint(const CheckpointRequest& r, const std::vector<int>& modules,
                      const ModelGraph& graph, pb::Decisions& out) {
  if (modules.empty()) return;
  pb::Checkpoint& c = *out.mutable_checkpoint();
  for (const int m : modules) c.add_modules(graph.modules[m].path);
  c.set_reentrant(r.reentrant);
  c.set_outside_unit(r.outside_unit);
  for (const std::string& op : r.save_ops) c.add_save_ops(op);
  c.set_save_every_second_matmul(r.save_every_second_matmul);
  c.set_no_early_stop(!r.early_stop);
}

void RecordPrefetch(const std::vector<PrefetchRequest>& requests,
                    google::protobuf::RepeatedPtrField<pb::Prefetch>& out) {
  for (const PrefetchRequest& r : requests) {
    pb::Prefetch& p = *out.Add();
    p.set_module(r.module);
    for (const std::string& target : r.targets) p.add_targets(target);
  }
}

void RecordSharding(const PlanRequest& r, pb::Decisions& out) {
  out.set_reshard_after_forward(Describe(r.reshard_after_forward));
  out.set_root_reshard_after_forward(Describe(r.root_reshard_after_forward));
  out.set_world_size(r.world_size);
  out.set_replicate_size(r.replicate_size);
  RecordPrefetch(r.forward_prefetch, *out.mutable_forward_prefetch());
  RecordPrefetch(r.backward_prefetch, *out.mutable_backward_prefetch());
  for (const std::string& module : r.sharded_in_backward) out.add_sharded_in_backward(module);
  for (const ShardPlacementRequest& row : r.shard_placements) {
    pb::ShardPlacement& placement = *out.add_shard_placements();
    placement.set_parameters(row.parameters);
    placement.set_dim(row.dim);
    placement.set_rank(row.rank);
  }
  out.set_reduce_input_buffers(r.reduce_input_buffers);
  out.set_gradient_divide_factor(r.gradient_divide_factor.value_or(0));
  out.set_force_sum_reduction(r.force_sum_reduction);
  out.set_separate_reduce_group(r.separate_reduce_group);
  out.set_cpu_offload(r.cpu_offload);
}

void RecordDTypes(const PlanRequest& r, const StepDecisions& d, pb::Decisions& out) {
  out.set_original_dtype(ToProto(d.original));
  out.set_param_dtype(ToProto(d.forward.compute));
  out.set_reduce_dtype(ToProto(d.reduce));
  out.set_keep_forward_inputs(!d.forward.casts_inputs);
  if (r.output_dtype) out.set_output_dtype(ToProto(*r.output_dtype));
  if (r.state_dtype) out.set_state_dtype(ToProto(*r.state_dtype));
}

void RecordTraining(const PlanRequest& r, const StepDecisions& d, pb::Decisions& out) {
  out.set_optimizer(d.optimizer.kind);
  out.set_optimizer_impl(d.optimizer.impl);
  if (r.learning_rate) out.set_learning_rate(*r.learning_rate);
  if (r.weight_decay) out.set_weight_decay(*r.weight_decay);
  if (r.momentum) out.set_momentum(*r.momentum);
  out.set_loss(d.loss);
  out.set_micro_batch(r.micro_batch);
  out.set_seq(r.seq);
  RecordMicroBatches(r.micro_batches, *out.mutable_micro_batches());
  if (!r.clip) return;
  out.mutable_clip()->set_max_norm(r.clip->max_norm);
  out.mutable_clip()->set_loop(!r.clip->foreach);
}

// ---- from the message

// A text of Describe(Reshard).
StatusOr<std::optional<Reshard>> ReshardOf(const char* field, const std::string& text) {
  if (text.empty()) return std::optional<Reshard>();
  if (text == "true" || text == "false") return std::optional<Reshard>(text == "true");
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error == std::errc() && end == text.data() + text.size() && ranks >= 1) {
    return std::optional<Reshard>(Reshard::Groups(ranks));
  }
  return InvalidArgument(
      fmt::format("{}: found \"{}\", expected true, false or a number of ranks", field, text));
}

StatusOr<std::optional<Reshard>> ReshardOf(const pb::WrapCall& call) {
  if (call.reshard_to() < 0 || (call.reshard_to() > 0 && !call.reshard_after_forward())) {
    return InvalidArgument(fmt::format(
        "wrap: found reshard_to {}, expected 0, or with reshard_after_forward true a number of "
        "ranks",
        call.reshard_to()));
  }
  if (call.reshard_to() > 0) return std::optional<Reshard>(Reshard::Groups(call.reshard_to()));
  if (!call.has_reshard_after_forward()) return std::optional<Reshard>();
  return std::optional<Reshard>(call.reshard_after_forward());
}

Status ReadWrap(const pb::Decisions& d, PlanRequest& r) {
  ASSIGN_OR_RETURN(r.reshard_after_forward,
                   ReshardOf("reshard_after_forward", d.reshard_after_forward()));
  ASSIGN_OR_RETURN(r.root_reshard_after_forward,
                   ReshardOf("root_reshard_after_forward", d.root_reshard_after_forward()));
  if (!d.wrap_policy().empty() && d.wrap_policy() != kExplicit) {
    r.wrap = d.wrap_policy();
    return OkStatus();
  }
  if (d.wrap_policy() == kExplicit && d.wrap().empty()) {
    return InvalidArgument("wrap_policy: explicit, but `wrap` lists no call of fully_shard");
  }
  for (const pb::WrapCall& call : d.wrap()) {
    WrapRequest& request = r.wrap_calls.emplace_back();
    request.modules.assign(call.modules().begin(), call.modules().end());
    ASSIGN_OR_RETURN(request.reshard_after_forward, ReshardOf(call));
  }
  return OkStatus();
}

StatusOr<std::string> BackwardPrefetchName(pb::Fsdp1Options::BackwardPrefetch prefetch) {
  switch (prefetch) {
    case pb::Fsdp1Options::BACKWARD_PRE:
      return std::string("pre");
    case pb::Fsdp1Options::BACKWARD_POST:
      return std::string("post");
    case pb::Fsdp1Options::BACKWARD_NONE:
      return std::string("none");
    default:
      return InvalidArgument(fmt::format("fsdp1.backward_prefetch: {} is none", int{prefetch}));
  }
}

Status ReadStrategy(const pb::Decisions& d, PlanRequest& r) {
  if (!pb::Strategy_IsValid(d.strategy())) {
    return InvalidArgument(fmt::format("strategy: {} is none", int{d.strategy()}));
  }
  r.strategy = StrategyName(d.strategy());
  r.fsdp1.use_orig_params = d.fsdp1().use_orig_params();
  ASSIGN_OR_RETURN(r.fsdp1.backward_prefetch, BackwardPrefetchName(d.fsdp1().backward_prefetch()));
  r.fsdp1.forward_prefetch = d.fsdp1().forward_prefetch();
  r.fsdp1.limit_all_gathers = !d.fsdp1().no_limit_all_gathers();
  if (d.ddp().bucket_bytes() != 0) r.ddp.bucket_bytes = d.ddp().bucket_bytes();
  if (d.ddp().first_bucket_bytes() != 0) r.ddp.first_bucket_bytes = d.ddp().first_bucket_bytes();
  r.ddp.gradient_as_bucket_view = d.ddp().gradient_as_bucket_view();
  const auto read = [](const pb::ClassSet& set) {
    return std::vector<std::string>(set.classes().begin(), set.classes().end());
  };
  if (d.has_force_leaf_modules()) r.force_leaf_modules = read(d.force_leaf_modules());
  if (d.has_exclude_wrap_modules()) r.exclude_wrap_modules = read(d.exclude_wrap_modules());
  return OkStatus();
}

void ReadSharding(const pb::Decisions& d, PlanRequest& r) {
  r.world_size = d.world_size();
  if (d.replicate_size() != 0) r.replicate_size = d.replicate_size();
  for (const pb::Prefetch& p : d.forward_prefetch()) {
    r.forward_prefetch.push_back({p.module(), {p.targets().begin(), p.targets().end()}});
  }
  for (const pb::Prefetch& p : d.backward_prefetch()) {
    r.backward_prefetch.push_back({p.module(), {p.targets().begin(), p.targets().end()}});
  }
  r.sharded_in_backward.assign(d.sharded_in_backward().begin(), d.sharded_in_backward().end());
  for (const pb::ShardPlacement& row : d.shard_placements()) {
    r.shard_placements.push_back({row.parameters(), row.dim(), row.rank()});
  }
  if (d.reduce_input_buffers() != 0) r.reduce_input_buffers = d.reduce_input_buffers();
  if (d.gradient_divide_factor() != 0) r.gradient_divide_factor = d.gradient_divide_factor();
  r.force_sum_reduction = d.force_sum_reduction();
  r.separate_reduce_group = d.separate_reduce_group();
  r.cpu_offload = d.cpu_offload();
}

StatusOr<std::optional<DType>> DTypeOf(const char* field, pb::DType dtype) {
  if (dtype == pb::DTYPE_UNSPECIFIED) return std::optional<DType>();
  if (dtype == pb::FP32 || dtype == pb::BF16 || dtype == pb::FP16) {
    return std::optional<DType>(static_cast<DType>(dtype));
  }
  return InvalidArgument(
      fmt::format("{}: found {}, expected FP32, BF16 or FP16", field,
                  pb::DType_IsValid(dtype) ? pb::DType_Name(dtype) : fmt::to_string(int{dtype})));
}

Status ReadDTypes(const pb::Decisions& d, PlanRequest& r) {
  ASSIGN_OR_RETURN(const auto original, DTypeOf("original_dtype", d.original_dtype()));
  ASSIGN_OR_RETURN(const auto param, DTypeOf("param_dtype", d.param_dtype()));
  ASSIGN_OR_RETURN(const auto reduce, DTypeOf("reduce_dtype", d.reduce_dtype()));
  if (original) r.original_dtype = *original;
  if (param) r.param_dtype = param;
  if (reduce) r.reduce_dtype = reduce;
  ASSIGN_OR_RETURN(r.output_dtype, DTypeOf("output_dtype", d.output_dtype()));
  ASSIGN_OR_RETURN(r.state_dtype, DTypeOf("state_dtype", d.state_dtype()));
  r.cast_forward_inputs = !d.keep_forward_inputs();
  return OkStatus();
}

StatusOr<std::string> OptimizerName(pb::OptimizerKind kind) {
  switch (kind) {
    case pb::OPTIMIZER_NONE:
      return std::string("none");
    case pb::ADAMW:
      return std::string("adamw");
    case pb::SGD:
      return std::string("sgd");
    case pb::ADAMW_8BIT:
      return std::string("adamw8bit");
    default:
      return InvalidArgument(fmt::format("optimizer: {} is none", int{kind}));
  }
}

StatusOr<std::string> OptimizerImplName(pb::OptimizerImpl impl) {
  switch (impl) {
    case pb::OPTIMIZER_IMPL_NONE:
      return PlanRequest().optimizer_impl;
    case pb::FUSED:
      return std::string("fused");
    case pb::FOREACH:
      return std::string("foreach");
    case pb::LOOP:
      return std::string("loop");
    default:
      return InvalidArgument(fmt::format("optimizer_impl: {} is none", int{impl}));
  }
}

StatusOr<std::string> LossName(pb::LossKind loss) {
  switch (loss) {
    case pb::LOSS_NONE:
      return PlanRequest().loss;
    case pb::SUM_FP32:
      return std::string("sum_fp32");
    case pb::CROSS_ENTROPY_FP32:
      return std::string("cross_entropy_fp32");
    case pb::CROSS_ENTROPY:
      return std::string("cross_entropy");
    case pb::CROSS_ENTROPY_IN_MODEL:
      return std::string("cross_entropy_in_model");
    default:
      return InvalidArgument(fmt::format("loss: {} is none", int{loss}));
  }
}

void ReadMicroBatches(const pb::MicroBatches& m, MicroBatchRequest& r) {
  if (m.count() != 0) r.count = m.count();
  r.reduce = !m.reduce_in_last_only();
  if (m.keep_after_backward()) r.reshard_after_backward = false;
  r.all_reduce = !m.all_reduce_in_last_only();
  r.last_backward = !m.last_backward_in_last_only();
}

Status ReadTraining(const pb::Decisions& d, PlanRequest& r) {
  ASSIGN_OR_RETURN(r.optimizer, OptimizerName(d.optimizer()));
  ASSIGN_OR_RETURN(r.optimizer_impl, OptimizerImplName(d.optimizer_impl()));
  if (d.has_learning_rate()) r.learning_rate = d.learning_rate();
  if (d.has_weight_decay()) r.weight_decay = d.weight_decay();
  if (d.has_momentum()) r.momentum = d.momentum();
  ASSIGN_OR_RETURN(r.loss, LossName(d.loss()));
  if (d.micro_batch() != 0) r.micro_batch = d.micro_batch();
  r.seq = d.seq();
  ReadMicroBatches(d.micro_batches(), r.micro_batches);
  if (d.has_clip()) r.clip = ClipRequest{d.clip().max_norm(), !d.clip().loop()};
  return OkStatus();
}

void ReadCheckpoint(const pb::Checkpoint& c, CheckpointRequest& r) {
  r.modules.assign(c.modules().begin(), c.modules().end());
  r.reentrant = c.reentrant();
  r.outside_unit = c.outside_unit();
  r.save_ops.assign(c.save_ops().begin(), c.save_ops().end());
  r.save_every_second_matmul = c.save_every_second_matmul();
  r.early_stop = !c.no_early_stop();
}

}  // namespace

void RecordDecisions(const PlanRequest& request, const StepDecisions& decisions,
                     const std::vector<WrapRequest>& calls, const ModelGraph& graph,
                     pb::Decisions& out) {
  out.set_torch(request.torch);
  out.set_kernel_profile(std::string(decisions.forward.profile->name));
  out.set_attention(decisions.forward.attention.name);
  out.set_attention_reason(decisions.forward.attention.reason);
  out.set_wrap_policy(request.wrap_calls.empty() ? request.wrap : kExplicit);
  out.set_arch(decisions.arch);
  RecordStrategy(request, decisions, out);
  RecordWrap(calls, out);
  RecordSharding(request, out);
  RecordDTypes(request, decisions, out);
  RecordTraining(request, decisions, out);
  RecordCheckpoint(request.checkpoint, decisions.forward.checkpointed, graph, out);
  for (const std::string& sentence : Assumptions(request, decisions)) out.add_assumptions(sentence);
}

StatusOr<PlanRequest> RequestOf(const pb::Decisions& decisions) {
  PlanRequest r;
  if (!decisions.torch().empty()) r.torch = decisions.torch();
  if (!decisions.kernel_profile().empty()) r.kernel_profile = decisions.kernel_profile();
  // What was left to the planner is left to it again.
  const bool chosen = !decisions.attention().empty() && decisions.attention_reason().empty();
  if (chosen) r.attention = decisions.attention();
  if (!decisions.arch().empty()) r.arch = decisions.arch();
  RETURN_IF_ERROR(ReadStrategy(decisions, r));
  RETURN_IF_ERROR(ReadWrap(decisions, r));
  ReadSharding(decisions, r);
  RETURN_IF_ERROR(ReadDTypes(decisions, r));
  RETURN_IF_ERROR(ReadTraining(decisions, r));
  ReadCheckpoint(decisions.checkpoint(), r.checkpoint);
  return r;
}

}  // namespace foreshard
