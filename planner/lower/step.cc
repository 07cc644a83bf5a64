#include "planner/lower/step.h"

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
    std::vector<UnitLayout> layouts =
        LayOut(graph_, units_, d_.world_size, d_.original, streams_.compute, builder_);
    AddInitialValues(model_, graph_, builder_.plan());
    Eager eager(builder_, streams_.compute);
    eager.set_cast_leaf_gradients(d_.behaviour.casts_leaf_gradients);
    if (model_.vocab_size() > 0) {
      eager.MarkLogits(model_.vocab_size(), graph_.batch * graph_.seq);
    }
    const Sharding sharding{d_.behaviour, streams_,   d_.world_size, 0,
                            d_.original,  d_.compute, d_.reduce};
    Fsdp2 fsdp(eager, graph_, units_, std::move(layouts), sharding);
    ForwardPass forward(eager, graph_, units_, fsdp, *d_.profile, d_.attention, d_.compute);
    const Tensor labels = AddInputs(eager, forward);
    AddWorkspace();

    builder_.BeginSegment("step");
    builder_.SetPhase(pb::FORWARD);
    Tensor loss = Loss(eager, forward.Run(), labels);
    for (BufferId b : eager.LiveBuffers()) builder_.buffer(b).set_category(pb::ACTIVATION);
    builder_.SetPhase(pb::BACKWARD);
    eager.Backward(loss, fsdp);
    loss.reset();
    AddOptimizer(d_.optimizer, d_.original, graph_, fsdp, streams_.compute, d_.world_size,
                 builder_);
    AddPrograms();
  }

 private:
  void AddTables() {
    pb::Plan& plan = builder_.plan();
    streams_.compute = builder_.AddStream("compute", pb::Stream::COMPUTE);
    streams_.copy_in = builder_.AddStream("gather_copy_in", pb::Stream::GATHER_COPY_IN);
    streams_.gather = builder_.AddStream("gather", pb::Stream::GATHER);
    streams_.reduce = builder_.AddStream("reduce", pb::Stream::REDUCE);
    pb::Group& group = *plan.add_groups();
    group.set_name("shard");
    group.set_size(d_.world_size);
    group.set_stride(1);
    for (const GraphModule& m : graph_.modules) {
      pb::ModuleInfo& info = *plan.add_modules();
      info.set_path(m.path);
      info.set_class_(m.class_name);
    }
    builder_.SetModuleUnits(UnitOfModules(graph_, units_));
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
      labels =
          AddInput(eager, "labels", {graph_.batch * graph_.seq}, DType::kInt64, pb::Input::LABELS);
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
    if (!d_.profile->library_workspaces) return;
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
      loss = d_.profile->cross_entropy(eager, rows, labels);
    }
    eager.set_in_loss(false);
    builder_.plan().add_losses(eager.buffer(loss));
    return loss;
  }

  void AddPrograms() {
    const auto add = [&](const char* name, const std::vector<const char*>& segments) {
      pb::Program& program = *builder_.plan().add_programs();
      program.set_name(name);
      for (const char* segment : segments) {
        for (int i = 0; i < builder_.plan().segments_size(); ++i) {
          if (builder_.plan().segments(i).name() != segment) continue;
          pb::SegmentUse& use = *program.add_uses();
          use.set_segment(i);
          use.set_repeat(1);
        }
      }
    };
    add("first", {"step", "optimizer_init", "optimizer"});
    add("steady", {"step", "optimizer"});
  }

  const pb::Model& model_;
  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  const StepDecisions& d_;
  PlanBuilder builder_;
  Streams streams_{};
};

}  // namespace

void LowerStep(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan) {
  StepLowering(model, graph, units, decisions, plan).Run();
}

}  // namespace foreshard
