#include "planner/lower/step.h"

#include <algorithm>
#include <memory>
#include <string>

#include "planner/eager/ops.h"
#include "planner/lower/ddp.h"
#include "planner/lower/facts.h"
#include "planner/lower/forward.h"
#include "planner/lower/fsdp1.h"
#include "planner/lower/fsdp2.h"
#include "planner/lower/programs.h"
#include "planner/lower/step_tables.h"
#include "proto/oplib/workspace.h"
#include "proto/strategy.h"

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
    tables_ = AddTables(graph_, units_, d_, builder_);
    std::vector<UnitLayout> layouts = LayOut(graph_, units_, PlaceOfShards(d_, tables_), builder_);
    FillUnits(units_, tables_, builder_);
    AddInitialValues(model_, graph_, builder_.plan());
    Eager eager(builder_, tables_.streams.compute);
    if (model_.vocab_size() > 0) {
      eager.MarkLogits(model_.vocab_size(), graph_.batch * graph_.seq);
    }
    const std::unique_ptr<ShardingRules> rules = MakeRules(eager, std::move(layouts));
    ForwardPass forward(eager, graph_, units_, *rules, d_.forward);
    const Tensor labels = AddInputs(eager, forward);
    AddWorkspace();
    if (d_.loss == pb::CROSS_ENTROPY_IN_MODEL) {
      forward.SetLoss([&](const Tensor& output) { return LossInModel(eager, output, labels); });
    }
    LowerSteps({eager, *rules, forward, labels});
  }

 private:
  // What runs.
  struct Actors {
    Eager& eager;
    ShardingRules& rules;
    ForwardPass& forward;
    const Tensor& labels;
  };
  using Uses = SegmentRepeats;

  std::unique_ptr<ShardingRules> MakeRules(Eager& eager, std::vector<UnitLayout> layouts) {
    const Sharding sharding = ShardingOf(d_, tables_);
    if (IsFsdp1(d_.strategy)) {
      return std::make_unique<Fsdp1>(eager, graph_, units_, std::move(layouts), sharding,
                                     d_.strategy, d_.fsdp1);
    }
    if (IsReplicated(d_.strategy)) {
      return std::make_unique<Ddp>(eager, graph_, std::move(layouts), sharding, d_.ddp);
    }
    return std::make_unique<Fsdp2>(eager, graph_, units_, tables_.units, std::move(layouts),
                                   sharding);
  }

  // Lowers one step after the other until a step leaves what it found: it is the steady one. What
  // libraries keep from step to step settles within a few.
  void LowerSteps(const Actors& actors) {
    constexpr size_t kMostSteps = 16;
    std::vector<Uses> steps;
    std::vector<Uses> updates;
    std::vector<ShardingRules::Gradient> updated;
    std::string found;
    do {
      CHECK(steps.size() < kMostSteps) << "no step leaves what it found";
      found = actors.rules.State();
      steps.push_back(LowerMicroBatches(actors));
      if (updates.empty() || actors.rules.gradients() != updated) {
        updates.push_back(LowerUpdate(actors.rules));
        updated = actors.rules.gradients();
      } else {
        updates.push_back(Replay(updates.back()));
      }
      actors.rules.EndStep();
    } while (actors.rules.State() != found);
    AddPrograms(steps, std::move(updates), builder_.plan());
  }

  // An update of the same gradients; state is there.
  Uses Replay(Uses update) {
    std::erase_if(update, [&](const auto& use) { return CreatesState(builder_.plan(), use); });
    for (const SegmentRepeat& use : update) builder_.Replay(use.segment);
    return update;
  }

  // One segment for each kind of micro-batch: they differ by what they are told and what they find.
  Uses LowerMicroBatches(const Actors& actors) {
    Uses uses;
    BackwardRules told_before;
    std::string found_before;
    for (int m = 0; m < d_.micro_batches; ++m) {
      const bool is_last = m + 1 == d_.micro_batches;
      const BackwardRules told = is_last ? BackwardRules{} : d_.before_last;
      std::string found = actors.rules.State();
      if (m > 0 && told == told_before && found == found_before) {
        ++uses.back().repeat;
        continue;
      }
      const bool as_others = told == d_.before_last;
      LowerMicroBatch(m, NameOf(m, as_others, static_cast<int>(uses.size())), told, actors);
      uses.push_back({builder_.plan().segments_size() - 1, 1});
      told_before = told;
      found_before = std::move(found);
    }
    builder_.SetMicroBatch(0);
    return uses;
  }

  std::string NameOf(int micro_batch, bool as_others, int segments_before) const {
    if (d_.micro_batches == 1) return "step";
    if (micro_batch == 0) return "first_micro_batch";
    if (!as_others) return "last_micro_batch";
    if (segments_before == 1) return "next_micro_batch";
    return "next_micro_batch_" + std::to_string(segments_before);
  }

  void LowerMicroBatch(int micro_batch, const std::string& name, const BackwardRules& told,
                       const Actors& actors) {
    Eager& eager = actors.eager;
    builder_.BeginSegment(name);
    builder_.SetMicroBatch(micro_batch);
    builder_.SetPhase(pb::FORWARD);
    actors.rules.BeginMicroBatch(told);
    eager.ForgetDraws();
    const int before = eager.storages();
    Tensor loss = actors.forward.Run();
    if (d_.loss != pb::CROSS_ENTROPY_IN_MODEL) loss = Loss(eager, std::move(loss), actors.labels);
    builder_.plan().add_losses(eager.buffer(loss));
    for (BufferId b : eager.LiveBuffers(before)) builder_.buffer(b).set_category(pb::ACTIVATION);
    builder_.SetPhase(pb::BACKWARD);
    eager.Backward(loss, actors.rules);
    loss.reset();
  }

  // Clipping and the optimizer.
  Uses LowerUpdate(const ShardingRules& rules) {
    const int first = builder_.plan().segments_size();
    const UpdatePlace update = PlaceOfUpdate(d_, tables_);
    if (d_.clip) AddClip(*d_.clip, update, rules, builder_);
    AddOptimizer(d_.optimizer, update, rules, builder_, optimizer_state_);
    Uses uses;
    for (int s = first; s < builder_.plan().segments_size(); ++s) uses.push_back({s, 1});
    return uses;
  }

  Tensor AddInput(Eager& eager, const std::string& name, const Dims& shape, DType dtype,
                  pb::Input::Rule rule) {
    builder_.SetModule(-1);
    const BufferId buffer =
        builder_.AddResident(Numel(shape) * SizeOf(dtype), pb::INPUT, tables_.streams.compute);
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
                                                     pb::MODULE_BUFFER, tables_.streams.compute);
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
    row.set_buffer(builder_.AddResident(bytes, pb::WORKSPACE, tables_.streams.compute));
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

  const pb::Model& model_;
  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  const StepDecisions& d_;
  PlanBuilder builder_;
  StepTables tables_;
  std::vector<BufferId> optimizer_state_;
};

}  // namespace

void LowerStep(const pb::Model& model, const ModelGraph& graph, const std::vector<Unit>& units,
               const StepDecisions& decisions, pb::Plan& plan) {
  StepLowering(model, graph, units, decisions, plan).Run();
}

}  // namespace foreshard
