// Runs the forward of a model graph on the eager emulation, calling the sharding rules where a
// module that is a unit begins and ends.
#pragma once

#include <vector>

#include "planner/eager/eager.h"
#include "planner/lower/fsdp2.h"
#include "planner/profiles/profile.h"

namespace foreshard {

class ForwardPass {
 public:
  ForwardPass(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units, Fsdp2& fsdp,
              const KernelProfile& profile, const AttentionChoice& attention, DType compute);

  // The tensors behind the graph's inputs, same order.
  void SetInputs(std::vector<Tensor> inputs);
  // Frequencies of the rotary tables, where the model has them.
  void SetInverseFrequencies(Tensor t) { inverse_frequencies_ = std::move(t); }

  // Runs everything and returns the model's first output; its other values are gone.
  Tensor Run();

 private:
  void Enter(int module, const std::vector<ValueId>& args);
  void Exit(int module, const std::vector<ValueId>& results);
  void Execute(const GraphOp& op);
  Tensor Norm(const GraphOp& op);
  Tensor Attend(const GraphOp& op);
  const Tensor& Param(const GraphOp& op, int i) const { return fsdp_.parameter(op.params[i]); }
  const Tensor& In(const GraphOp& op, int i) const { return values_[op.in[i]]; }

  Eager& eager_;
  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  Fsdp2& fsdp_;
  const KernelProfile& profile_;
  const AttentionChoice& attention_;
  const DType compute_;
  Tensor inverse_frequencies_;
  std::vector<Tensor> values_;           // per ValueId
  std::vector<int> first_of_, last_of_;  // module -> unit that it opens or closes, kNone
};

}  // namespace foreshard
