#include "planner/lower/step.h"

#include <map>
#include <string>

#include "planner/eager/ops.h"
#include "planner/lower/facts.h"
#include "planner/lower/forward.h"
#include "planner/lower/fsdp2.h"
#include "proto/oplib/workspace.h"

namespace foreshard {
namespace {

pb::Input::Rule RuleOf(pb::ModelInput::Kind kind) {
  switch (kind) {
    case pb::ModelInput::TOKENS:
      return pb::Input::TOKENS;
    case pb::ModelInput::POSITIONS:
      return pb::Input::POSITIONS;
    default:
      return pb::Input::NORMAL;
  }
}

class StepLowering {
 public:
  StepLowering(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan)
      : model_(model), graph_(graph), units_(units), d_(decisions), builder_(plan) {}

  void Run() {
    AddTables();
    AddGroups();
    const ShardingPlace place{d_.shard_ranks, d_.original, streams_.compute, d_.offloads,
                              d_.shard_dims};
    std::vector<UnitLayout> layouts = LayOut(graph_, units_, place, builder_);
    FillUnits();
    AddInitialValues(model_, graph_, builder_.plan());
    Eager eager(builder_, streams_.compute);
    if (model_.vocab_size() > 0) {
      eager.MarkLogits(model_.vocab_size(), graph_.batch * graph_.seq);
    }
    Fsdp2 fsdp(eager, graph_, units_, rules_, std::move(layouts), ShardingOf());
    ForwardPass forward(eager, graph_, units_, fsdp, d_.forward);
    const Tensor labels = AddInputs(eager, forward);
    AddWorkspace();
    if (d_.loss == pb::CROSS_ENTROPY_IN_MODEL) {
      forward.SetLoss([&](const Tensor& output) { return LossInModel(eager, output, labels); });
    }
    for (const Part& part : Parts()) LowerPart(part, eager, fsdp, forward, labels);
    builder_.SetMicroBatch(0);
    const UpdatePlace update = PlaceOfUpdate();
    if (d_.clip) AddClip(*d_.clip, update, graph_, fsdp, builder_);
    AddOptimizer(d_.optimizer, update, graph_, fsdp, builder_);
    AddPrograms();
  }

 private:
  // Micro-batches that are lowered once: a segment.
  struct Part {
    const char* segment;
    int first;
    int count;
    BackwardRules rules;
  };

  // Micro-batches differ by what they find: the first finds no gradients. Where the last is told
  // something else, it differs too.
  std::vector<Part> Parts() const {
    const int n = d_.micro_batches;
    const BackwardRules& rules = d_.before_last;
    if (n == 1) return {{"step", 0, 1, {}}};
    const bool alike = rules.reduces && rules.reshards && rules.all_reduces && rules.is_last;
    if (alike) return {{"first_micro_batch", 0, 1, {}}, {"next_micro_batch", 1, n - 1, {}}};
    std::vector<Part> parts = {{"first_micro_batch", 0, 1, rules}};
    if (n > 2) parts.push_back({"next_micro_batch", 1, n - 2, rules});
    parts.push_back({"last_micro_batch", n - 1, 1, {}});
    return parts;
  }

  void LowerPart(const Part& part, Eager& eager, Fsdp2& fsdp, ForwardPass& forward,
                 const Tensor& labels) {
    builder_.BeginSegment(part.segment);
    builder_.SetMicroBatch(part.first);
    builder_.SetPhase(pb::FORWARD);
    fsdp.BeginMicroBatch(part.rules);
    eager.ForgetDraws();
    const int before = eager.storages();
    Tensor loss = forward.Run();
    if (d_.loss != pb::CROSS_ENTROPY_IN_MODEL) loss = Loss(eager, std::move(loss), labels);
    builder_.plan().add_losses(eager.buffer(loss));
    for (BufferId b : eager.LiveBuffers(before)) builder_.buffer(b).set_category(pb::ACTIVATION);
    builder_.SetPhase(pb::BACKWARD);
    eager.Backward(loss, fsdp);
    loss.reset();
  }

  void AddTables() {
    pb::Plan& plan = builder_.plan();
    streams_.compute = builder_.AddStream("compute", pb::Stream::COMPUTE);
    streams_.copy_in = builder_.AddStream("gather_copy_in", pb::Stream::GATHER_COPY_IN);
    streams_.gather = builder_.AddStream("gather", pb::Stream::GATHER);
    streams_.reduce = builder_.AddStream("reduce", pb::Stream::REDUCE);
    if (d_.replicas > 1) {
      streams_.all_reduce = builder_.AddStream("all_reduce", pb::Stream::ALL_REDUCE);
    }
    if (d_.offloads) streams_.host = builder_.AddStream("host", pb::Stream::HOST);
    for (const GraphModule& m : graph_.modules) {
      pb::ModuleInfo& info = *plan.add_modules();
      info.set_path(m.path);
      info.set_class_(m.class_name);
    }
    builder_.SetModuleUnits(UnitOfModules(graph_, units_));
  }

  int AddGroup(std::string name, int size, int stride) {
    pb::Group& group = *builder_.plan().add_groups();
    group.set_name(std::move(name));
    group.set_size(size);
    group.set_stride(stride);
    return builder_.plan().groups_size() - 1;
  }

  void AddGroups() {
    gather_group_ = reduce_group_ = AddGroup("shard", d_.shard_ranks, 1);
    if (d_.separate_reduce_group) reduce_group_ = AddGroup("reduce", d_.shard_ranks, 1);
    if (d_.replicas > 1) replicate_group_ = AddGroup("replicate", d_.replicas, d_.shard_ranks);
    std::map<int, int> by_size;  // groups that units are resharded to
    rules_ = d_.units;
    for (UnitRules& rules : rules_) {
      const int ranks = rules.reshard_to;
      if (ranks <= 1) continue;
      const auto [it, fresh] = by_size.try_emplace(ranks, 0);
      if (fresh) it->second = AddGroup("shard_" + std::to_string(ranks), ranks, 1);
      rules.reshard_group = it->second;
    }
  }

  UpdatePlace PlaceOfUpdate() const {
    return {d_.original, d_.offloads ? streams_.host : streams_.compute, d_.offloads,
            d_.shard_ranks, gather_group_};
  }

  // What was decided for each unit that gathers anything.
  void FillUnits() {
    int row = 0;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].parameters.empty()) continue;
      pb::Unit& unit = *builder_.plan().mutable_units(row++);
      unit.set_reshard_after_forward(rules_[u].reshard_to != 1);
      if (rules_[u].reshard_to > 1) unit.set_reshard_to(rules_[u].reshard_to);
    }
  }

  Sharding ShardingOf() const {
    Sharding s;
    s.behaviour = d_.behaviour;
    s.streams = streams_;
    s.ranks = d_.shard_ranks;
    s.replicas = d_.replicas;
    s.gather_group = gather_group_;
    s.reduce_group = reduce_group_;
    s.replicate_group = replicate_group_;
    s.original = d_.original;
    s.compute = d_.forward.compute;
    s.reduce = d_.reduce;
    s.reduce_inputs = d_.reduce_inputs;
    s.divide_factor = d_.divide_factor;
    s.force_sum = d_.force_sum;
    s.offloads = d_.offloads;
    return s;
  }

  Tensor AddInput(Eager& eager, const std::string& name, const Dims& shape, DType dtype,
                  pb::Input::Rule rule) {
    builder_.SetModule(-1);
    const BufferId buffer =
        builder_.AddResident(Numel(shape) * SizeOf(dtype), pb::INPUT, streams_.compute);
    pb::Input& input = *builder_.plan().add_inputs();
    input.set_name(name);
    input.set_buffer(buffer);
    input.set_dtype(ToProto(dtype));
    for (int64_t s : shape) input.add_shape(s);
    input.set_rule(rule);
    if (dtype == DType::kInt64) input.set_limit(model_.vocab_size());
    return eager.External(buffer, dtype, shape);
  }

  // Feeds the model's inputs to `forward` and returns the labels, where the loss has any.
  Tensor AddInputs(Eager& eager, ForwardPass& forward) {
    std::vector<Tensor> inputs;
    for (const GraphInput& input : graph_.inputs) {
      const GraphValue& value = graph_.values[input.value];
      const DType dtype = value.type == ValueType::kInt64 ? DType::kInt64 : d_.original;
      inputs.push_back(AddInput(eager, input.name, value.shape, dtype, RuleOf(input.kind)));
    }
    forward.SetInputs(std::move(inputs));
    Tensor labels;
    if (d_.loss != pb::SUM_FP32) {
      const bool in_model = d_.loss == pb::CROSS_ENTROPY_IN_MODEL;
      const Dims rows{graph_.batch * graph_.seq};
      const Dims sequences{graph_.batch, graph_.seq};
      labels = AddInput(eager, "labels", in_model ? sequences : rows, DType::kInt64,
                        in_model ? pb::Input::TOKENS : pb::Input::LABELS);
    }
    AddModuleBuffers(eager, forward);
    return labels;
  }

  void AddModuleBuffers(Eager& eager, ForwardPass& forward) {
    for (size_t m = 0; m < graph_.modules.size(); ++m) {
      for (const pb::ModelBuffer& b : graph_.modules[m].source->buffers()) {
        Dims shape;
        for (int64_t s : b.shape()) shape.push_back(s);
        builder_.SetModule(static_cast<int>(m));
        const BufferId buffer = builder_.AddResident(Numel(shape) * SizeOf(DType::kFp32),
                                                     pb::MODULE_BUFFER, streams_.compute);
        AddModuleBuffer(model_, graph_.modules[m].path, b, buffer, builder_.plan());
        // The graph has made sure that there is one.
        if (b.name() == "inv_freq" && shape.size() == 1 &&
            2 * shape[0] == model_.rotary().head_dim()) {
          forward.SetInverseFrequencies(eager.External(buffer, DType::kFp32, {1, 1, shape[0]}));
        }
      }
    }
  }

  void AddWorkspace() {
    builder_.SetModule(-1);
    if (!d_.forward.profile->library_workspaces) return;
    const int64_t bytes = oplib::WorkspaceBytes("cublas", d_.arch).value();
    pb::Workspace& row = *builder_.plan().add_workspaces();
    row.set_library("cublas");
    row.set_arch(d_.arch);
    row.set_buffer(builder_.AddResident(bytes, pb::WORKSPACE, streams_.compute));
  }

  // The loss is computed outside the model; the model's output is not held beyond its use.
  Tensor Loss(Eager& eager, Tensor output, const Tensor& labels) {
    builder_.SetModule(-1);
    eager.set_in_loss(true);
    Tensor loss;
    if (d_.loss == pb::SUM_FP32) {
      Tensor wide = ops::Cast(eager, output, DType::kFp32);
      loss = ops::SumAll(eager, wide);
    } else {
      const int64_t classes = output.shape().back();
      Tensor rows = ops::Reshape(eager, output, {output.numel() / classes, classes});
      output.reset();
      if (d_.loss == pb::CROSS_ENTROPY_FP32) rows = ops::Cast(eager, rows, DType::kFp32);
      loss = d_.forward.profile->cross_entropy(eager, rows, labels);
    }
    eager.set_in_loss(false);
    return loss;
  }

  // The same from the logits that the model is about to return, with labels as transformers' causal
  // language models take them: shifted by one in the model.
  Tensor LossInModel(Eager& eager, const Tensor& output, const Tensor& labels) {
    builder_.SetModule(0);
    eager.set_in_loss(true);
    Tensor wide = ops::Cast(eager, output, DType::kFp32);
    Tensor shifted = ops::ShiftLabels(eager, labels);
    const int64_t classes = wide.shape().back();
    Tensor rows = ops::Reshape(eager, wide, {wide.numel() / classes, classes});
    Tensor targets = ops::Reshape(eager, shifted, {shifted.numel()});
    Tensor loss = d_.forward.profile->cross_entropy(eager, rows, targets);
    eager.set_in_loss(false);
    return loss;
  }

  void AddPrograms() {
    const auto add = [&](const char* name, bool is_first) {
      pb::Program& program = *builder_.plan().add_programs();
      program.set_name(name);
      const std::vector<Part> parts = Parts();
      for (int i = 0; i < builder_.plan().segments_size(); ++i) {
        const std::string& segment = builder_.plan().segments(i).name();
        if (segment == "optimizer_init" && !is_first) continue;
        pb::SegmentUse& use = *program.add_uses();
        use.set_segment(i);
        use.set_repeat(i < static_cast<int>(parts.size()) ? parts[i].count : 1);
      }
    };
    add("first", true);
    add("steady", false);
  }

  const pb::Model& model_;
  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  const StepDecisions& d_;
  PlanBuilder builder_;
  Streams streams_;
  std::vector<UnitRules> rules_;
  int gather_group_ = 0;
  int reduce_group_ = 0;
  int replicate_group_ = 0;
};

}  // namespace

void LowerStep(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan) {
  StepLowering(model, graph, units, decisions, plan).Run();
}

}  // namespace foreshard
