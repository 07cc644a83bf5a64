// Runs the forward of a model graph on the eager emulation, calling the sharding rules where a
// module that is a unit begins and ends.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/eager/eager.h"
#include "planner/lower/sharding_rules.h"
#include "planner/profiles/profile.h"

namespace foreshard {

// What a forward does besides the model's own operations.
struct ForwardChoices {
  const KernelProfile* profile = nullptr;
  AttentionChoice attention;
  DType compute = DType::kBf16;
  bool casts_inputs = true;          // of units, to the compute dtype
  std::optional<DType> output;       // to which units' outputs are cast
  std::vector<int> checkpointed;     // modules that run again in backward
  bool checkpoints_outside = false;  // around the unit's hooks, not within
  CheckpointRule checkpoint;
};

class ForwardPass {
 public:
  ForwardPass(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
              ShardingRules& rules, const ForwardChoices& choices);

  // The tensors behind the graph's inputs, same order, for every run.
  void SetInputs(std::vector<Tensor> inputs) { inputs_ = std::move(inputs); }
  // The loss, where the model computes it in its own forward: from its output, which it also
  // returns.
  using LossInModel = std::function<Tensor(const Tensor& output)>;
  void SetLoss(LossInModel loss) { loss_ = std::move(loss); }
  // Frequencies of the rotary tables, where the model has them.
  void SetInverseFrequencies(Tensor t) { inverse_frequencies_ = std::move(t); }

  // Runs everything and returns the model's first output, or its loss; its other values are gone.
  Tensor Run();

 private:
  void RunItems(int first, int last);
  void RunItem(const GraphItem& item);
  void RunCheckpointed(int first, int last, int module_enter);
  void Enter(int module, const std::vector<ValueId>& args);
  void Exit(int module, const std::vector<ValueId>& results);
  void Execute(const GraphOp& op);
  Tensor Norm(const GraphOp& op);
  Tensor Attend(const GraphOp& op);
  const Tensor& Param(const GraphOp& op, int i) const { return rules_.parameter(op.params[i]); }
  const Tensor& In(const GraphOp& op, int i) const { return values_[op.in[i]]; }

  Eager& eager_;
  const ModelGraph& graph_;
  ShardingRules& rules_;
  const ForwardChoices& choices_;
  const KernelProfile& profile_;
  LossInModel loss_;
  std::vector<Tensor> inputs_;
  Tensor inverse_frequencies_;
  std::vector<Tensor> values_;           // per ValueId
  std::vector<int> first_of_, last_of_;  // module -> unit that it opens or closes, kNone
  std::vector<bool> checkpointed_;       // per module
  bool in_region_ = false;
};

}  // namespace foreshard
