#include "planner/lower/forward.h"

#include "planner/eager/ops.h"

namespace foreshard {
namespace {

bool IsFloat(DType t) { return t == DType::kFp32 || t == DType::kBf16 || t == DType::kFp16; }

}  // namespace

ForwardPass::ForwardPass(Eager& eager, const ModelGraph& graph, const std::vector<Unit>& units,
                         ShardingRules& rules, const ForwardChoices& choices)
    : eager_(eager),
      graph_(graph),
      rules_(rules),
      choices_(choices),
      profile_(*choices.profile),
      first_of_(graph.modules.size(), kNone),
      last_of_(graph.modules.size(), kNone),
      checkpointed_(graph.modules.size(), false) {
  std::vector<int> unit_of(graph.modules.size(), kNone);
  for (size_t u = 0; u < units.size(); ++u) {
    for (int m : units[u].modules) unit_of[m] = static_cast<int>(u);
  }
  // A unit of several modules opens with the first and closes with the last that runs.
  std::vector<int> first(units.size(), kNone);
  std::vector<int> last(units.size(), kNone);
  for (const GraphItem& item : graph.items) {
    if (item.kind != GraphItem::Kind::kEnter || unit_of[item.index] == kNone) continue;
    const int unit = unit_of[item.index];
    if (first[unit] == kNone) first[unit] = item.index;
    last[unit] = item.index;
  }
  for (size_t u = 0; u < units.size(); ++u) {
    if (first[u] == kNone) continue;
    first_of_[first[u]] = static_cast<int>(u);
    last_of_[last[u]] = static_cast<int>(u);
  }
  for (int m : choices.checkpointed) checkpointed_[m] = true;
}

Tensor ForwardPass::Run() {
  values_.assign(graph_.values.size(), Tensor());
  for (size_t i = 0; i < inputs_.size(); ++i) values_[graph_.inputs[i].value] = inputs_[i];
  RunItems(0, static_cast<int>(graph_.items.size()));
  Tensor output = values_[graph_.outputs[0]];
  values_.clear();
  return output;
}

// Items from `first` on, up to `last`.
void ForwardPass::RunItems(int first, int last) {
  for (int i = first; i < last && !eager_.MayStop(); ++i) {
    const GraphItem& item = graph_.items[i];
    const bool enters = item.kind == GraphItem::Kind::kEnter && checkpointed_[item.index];
    if (!enters || in_region_) {
      RunItem(item);
      continue;
    }
    int exit = i;
    while (graph_.items[exit].kind != GraphItem::Kind::kExit ||
           graph_.items[exit].index != item.index) {
      ++exit;
    }
    if (!choices_.checkpoints_outside) {
      RunItem(item);
      RunCheckpointed(i + 1, exit, i);
      RunItem(graph_.items[exit]);
    } else {
      RunCheckpointed(i, exit + 1, i);
    }
    i = exit;
  }
}

void ForwardPass::RunItem(const GraphItem& item) {
  switch (item.kind) {
    case GraphItem::Kind::kEnter:
      return Enter(item.index, item.values);
    case GraphItem::Kind::kExit:
      return Exit(item.index, item.values);
    case GraphItem::Kind::kOp:
      return Execute(graph_.ops[item.index]);
    case GraphItem::Kind::kDrop:
      return values_[item.index].reset();
  }
}

// The items of a module's forward, which run again in backward with what the module was called
// with.
void ForwardPass::RunCheckpointed(int first, int last, int module_enter) {
  const std::vector<ValueId>& args = graph_.items[module_enter].values;
  int exit = last - 1;
  while (graph_.items[exit].kind != GraphItem::Kind::kExit ||
         graph_.items[exit].index != graph_.items[module_enter].index) {
    ++exit;
  }
  const std::vector<ValueId>& results = graph_.items[exit].values;
  std::vector<Tensor> inputs;
  for (ValueId v : args) inputs.push_back(values_[v]);
  const auto body = [this, first, last, &args, &results](const std::vector<Tensor>& tensors) {
    std::vector<Tensor> outer(graph_.values.size());
    outer.swap(values_);
    for (size_t i = 0; i < args.size(); ++i) values_[args[i]] = tensors[i];
    in_region_ = true;
    RunItems(first, last);
    in_region_ = false;
    std::vector<Tensor> out;
    if (!eager_.MayStop()) {
      for (ValueId v : results) out.push_back(values_[v]);
    }
    values_.swap(outer);
    return out;
  };
  std::vector<Tensor> out = eager_.Checkpoint(choices_.checkpoint, body, std::move(inputs));
  for (size_t i = 0; i < results.size(); ++i) values_[results[i]] = std::move(out[i]);
}

void ForwardPass::Enter(int module, const std::vector<ValueId>& args) {
  const int unit = first_of_[module];
  if (unit == kNone) return;
  std::vector<Tensor*> pointers;
  for (ValueId v : args) pointers.push_back(&values_[v]);
  eager_.builder().SetModule(module);
  for (Tensor* t : pointers) {
    if (choices_.casts_inputs && IsFloat((*t)->dtype)) *t = ops::Cast(eager_, *t, choices_.compute);
  }
  rules_.BeforeForward(unit, pointers);
}

void ForwardPass::Exit(int module, const std::vector<ValueId>& results) {
  std::vector<Tensor*> pointers;
  for (ValueId v : results) pointers.push_back(&values_[v]);
  Tensor output;  // returned beside the loss
  if (module == 0 && loss_) {
    output = values_[results[0]];
    values_[results[0]] = loss_(output);
    pointers.push_back(&output);
  }
  const int unit = last_of_[module];
  if (unit == kNone) return;
  rules_.AfterForward(unit, pointers);
  if (!choices_.output) return;
  eager_.builder().SetModule(module);
  for (Tensor* t : pointers) {
    if (IsFloat((*t)->dtype)) *t = ops::Cast(eager_, *t, *choices_.output);
  }
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
  auto run = choices_.attention.run;
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
      recipes::RotaryTables(e, In(op, 0), inverse_frequencies_, choices_.compute, &cos, &sin);
      set(0, std::move(cos));
      return set(1, std::move(sin));
    }
  }
}

}  // namespace foreshard
