#include "planner/lower/forward.h"

#include "planner/eager/ops.h"

namespace foreshard {

ForwardPass::ForwardPass(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
                         Fsdp2& fsdp, const KernelProfile& profile,
                         const AttentionChoice& attention, DType compute)
    : eager_(eager),
      graph_(graph),
      units_(units),
      fsdp_(fsdp),
      profile_(profile),
      attention_(attention),
      compute_(compute),
      values_(graph.values.size()),
      first_of_(graph.modules.size(), kNone),
      last_of_(graph.modules.size(), kNone) {
  // A unit of several modules opens with the first and closes with the last that runs.
  for (size_t u = 0; u < units.size(); ++u) {
    int first = kNone;
    int last = kNone;
    for (const GraphItem& item : graph.items) {
      if (item.kind != GraphItem::Kind::kEnter) continue;
      for (int m : units[u].modules) {
        if (item.index != m) continue;
        if (first == kNone) first = m;
        last = m;
      }
      if (units[u].modules.size() == 1 && first != kNone) break;
    }
    if (first != kNone) first_of_[first] = static_cast<int>(u);
    if (last != kNone) last_of_[last] = static_cast<int>(u);
  }
}

void ForwardPass::SetInputs(std::vector<Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    values_[graph_.inputs[i].value] = std::move(inputs[i]);
  }
}

Tensor ForwardPass::Run() {
  fsdp_.BeginForward();
  for (const GraphItem& item : graph_.items) {
    switch (item.kind) {
      case GraphItem::Kind::kEnter:
        Enter(item.index, item.values);
        break;
      case GraphItem::Kind::kExit:
        Exit(item.index, item.values);
        break;
      case GraphItem::Kind::kOp:
        Execute(graph_.ops[item.index]);
        break;
      case GraphItem::Kind::kDrop:
        values_[item.index].reset();
        break;
    }
  }
  Tensor output = values_[graph_.outputs[0]];
  values_.clear();
  return output;
}

void ForwardPass::Enter(int module, const std::vector<ValueId>& args) {
  const int unit = first_of_[module];
  if (unit == kNone) return;
  std::vector<Tensor*> pointers;
  for (ValueId v : args) pointers.push_back(&values_[v]);
  fsdp_.BeforeForward(unit, pointers);
  if (!units_[unit].is_root) return;
  // Floating-point inputs of the model are cast to the compute dtype.
  eager_.builder().SetModule(module);
  for (Tensor* t : pointers) {
    if ((*t)->dtype == DType::kFp32) *t = ops::Cast(eager_, *t, compute_);
  }
}

void ForwardPass::Exit(int module, const std::vector<ValueId>& results) {
  const int unit = last_of_[module];
  if (unit == kNone) return;
  std::vector<Tensor*> pointers;
  for (ValueId v : results) pointers.push_back(&values_[v]);
  fsdp_.AfterForward(unit, pointers);
}

Tensor ForwardPass::Norm(const GraphOp& op) {
  const pb::Module& module = *graph_.modules[op.module].source;
  const double eps = module.eps() > 0 ? module.eps() : 1e-5;
  const Tensor& x = In(op, 0);
  if (op.kind == OpKind::kRmsNorm) {
    const auto run = module.python_norm() ? profile_.python_rms_norm : profile_.library_rms_norm;
    return run(eager_, x, Param(op, 0), eps);
  }
  const DType stats = profile_.layer_norm_follows_input ? x.dtype() : profile_.layer_norm_stats;
  const Tensor* bias = op.params.size() > 1 ? &Param(op, 1) : nullptr;
  return ops::LayerNorm(eager_, x, Param(op, 0), bias, eps, stats);
}

Tensor ForwardPass::Attend(const GraphOp& op) {
  auto run = attention_.run;
  if (op.backend == "math") run = profile_.math;
  if (op.backend == "flash") run = profile_.flash;
  return run(eager_, In(op, 0), In(op, 1), In(op, 2), op.causal, op.p);
}

void ForwardPass::Execute(const GraphOp& op) {
  Eager& e = eager_;
  e.builder().SetModule(op.module);
  const auto set = [&](int i, Tensor t) { values_[op.out[i]] = std::move(t); };
  const Dims out = graph_.values[op.out[0]].shape;
  switch (op.kind) {
    case OpKind::kEmbedding:
      return set(0, ops::Embedding(e, In(op, 0), Param(op, 0)));
    case OpKind::kLinear:
      return set(0, ops::Linear(e, In(op, 0), Param(op, 0),
                                op.params.size() > 1 ? &Param(op, 1) : nullptr));
    case OpKind::kConv1d:
      return set(0, ops::Conv1d(e, In(op, 0), Param(op, 0), Param(op, 1)));
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      return set(0, Norm(op));
    case OpKind::kAdd:
      return set(0, ops::Add(e, In(op, 0), In(op, 1)));
    case OpKind::kMul:
      return set(0, ops::Mul(e, In(op, 0), In(op, 1)));
    case OpKind::kRelu:
      return set(0, ops::Relu(e, In(op, 0)));
    case OpKind::kGelu:
      return set(0, ops::Gelu(e, In(op, 0)));
    case OpKind::kGeluNew:
      return set(0, profile_.gelu_new(e, In(op, 0)));
    case OpKind::kDropout:
      return set(0, profile_.dropout(e, In(op, 0), op.p));
    case OpKind::kSilu:
      return set(0, ops::Silu(e, In(op, 0)));
    case OpKind::kChunk: {
      std::vector<Tensor> parts = ops::Chunk(e, In(op, 0), static_cast<int>(op.n));
      for (size_t i = 0; i < parts.size(); ++i) set(static_cast<int>(i), std::move(parts[i]));
      return;
    }
    case OpKind::kSplitHeads: {
      Tensor heads = ops::Reshape(e, In(op, 0), {out[0], out[2], out[1], out[3]});
      return set(0, ops::Transpose(e, heads, 1, 2));
    }
    case OpKind::kMergeHeads: {
      Tensor rows = ops::Transpose(e, In(op, 0), 1, 2);
      return set(0, ops::Reshape(e, rows, out));
    }
    case OpKind::kRepeatKv:
      return set(0, ops::RepeatHeads(e, In(op, 0), op.n));
    case OpKind::kAttention:
      return set(0, Attend(op));
    case OpKind::kParamSum:
      return set(0, ops::SumAll(e, Param(op, 0)));
    case OpKind::kRope:
      set(0, profile_.rope(e, In(op, 0), In(op, 2), In(op, 3)));
      return set(1, profile_.rope(e, In(op, 1), In(op, 2), In(op, 3)));
    case OpKind::kPositions:
      return set(0, recipes::Positions(e, graph_.seq));
    case OpKind::kRotaryTables: {
      Tensor cos;
      Tensor sin;
      recipes::RotaryTables(e, In(op, 0), inverse_frequencies_, compute_, &cos, &sin);
      set(0, std::move(cos));
      return set(1, std::move(sin));
    }
  }
}

}  // namespace foreshard
