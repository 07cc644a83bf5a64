#include "planner/graph/model_graph.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "planner/graph/shape_rules.h"

namespace foreshard {
namespace {

constexpr int kMaxDepth = 64;  // of module nesting

std::string Join(const std::string& path, const std::string& name) {
  if (path.empty()) return name;
  return name.empty() ? path : path + "." + name;
}

// Names of one running forward and the values they hold.
using Scope = std::unordered_map<std::string, ValueId>;

class Flattener {
 public:
  Flattener(const pb::Model& model, ModelGraph& graph) : model_(model), graph_(graph) {}

  Status AddTree() {
    RETURN_IF_ERROR(AddModules(model_.root(), "", kNone, 0));
    return AddParameters();
  }

  Status Run() {
    RETURN_IF_ERROR(AddTree());
    std::vector<ValueId> args;
    for (const pb::ModelInput& input : model_.inputs()) args.push_back(AddInput(input));
    ASSIGN_OR_RETURN(graph_.outputs, Call(0, args));
    BuildDag();
    return OkStatus();
  }

 private:
  Status AddModules(const pb::Module& m, const std::string& path, int parent, int depth) {
    if (depth > kMaxDepth) return InvalidInput(path + ": modules nest deeper than 64");
    const int index = static_cast<int>(graph_.modules.size());
    graph_.modules.push_back({path, m.class_(), parent, &m});
    if (!module_by_path_.emplace(path, index).second) {
      return InvalidInput(fmt::format("{}: two modules have this path", path));
    }
    for (const pb::Module& child : m.children()) {
      RETURN_IF_ERROR(AddModules(child, Join(path, child.name()), index, depth + 1));
    }
    return OkStatus();
  }

  Status AddParameters() {
    for (size_t i = 0; i < graph_.modules.size(); ++i) {
      const GraphModule& module = graph_.modules[i];
      for (const pb::ModelParameter& p : module.source->params()) {
        const std::string path = Join(module.path, p.name());
        if (p.tie().empty()) {
          RETURN_IF_ERROR(AddParameter(path, p, static_cast<int>(i)));
          continue;
        }
        auto target = parameter_by_path_.find(p.tie());
        if (target == parameter_by_path_.end()) {
          return InvalidInput(
              fmt::format("{}: tied to {}, which is no earlier parameter", path, p.tie()));
        }
        graph_.parameters[target->second].shared_with.push_back(path);
        parameter_by_path_[path] = target->second;
      }
    }
    return OkStatus();
  }

  Status AddParameter(const std::string& path, const pb::ModelParameter& p, int module) {
    if (p.shape().empty() || p.shape_size() > 4) {
      return InvalidInput(fmt::format("{}: {} dimensions, expected 1 to 4", path, p.shape_size()));
    }
    double numel = 1;
    for (int64_t d : p.shape()) {
      if (d < 1) return InvalidInput(fmt::format("{}: dimension {}, expected at least 1", path, d));
      numel *= static_cast<double>(d);
    }
    if (numel > 1e14) return InvalidInput(fmt::format("{}: {} elements are too many", path, numel));
    const Dims shape(std::span(p.shape().data(), static_cast<size_t>(p.shape_size())));
    parameter_by_path_[path] = static_cast<int>(graph_.parameters.size());
    graph_.parameters.push_back({path, shape, p.frozen(), module, {}, &p});
    return OkStatus();
  }

  ValueId AddInput(const pb::ModelInput& input) {
    GraphValue value;
    value.type = input.kind() == pb::ModelInput::FLOATS ? ValueType::kFloat : ValueType::kInt64;
    if (input.shape().empty() || value.type == ValueType::kInt64) {
      value.shape = Dims{graph_.batch, graph_.seq};
    } else {
      for (int64_t d : input.shape()) value.shape.push_back(d);
    }
    const ValueId id = NewValue(value);
    Hold(id);  // the caller of the model keeps its inputs
    graph_.inputs.push_back({input.name(), input.kind(), id, input.requires_grad()});
    return id;
  }

  ValueId NewValue(const GraphValue& value) {
    graph_.values.push_back(value);
    holders_.push_back(0);
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  void Hold(ValueId v) { ++holders_[v]; }
  void Let(ValueId v) {
    if (--holders_[v] == 0) graph_.items.push_back({GraphItem::Kind::kDrop, v, {}});
  }

  // Runs the forward of a module. The results come with one holder each, which the caller owes.
  StatusOr<std::vector<ValueId>> Call(int module, const std::vector<ValueId>& args) {
    graph_.items.push_back({GraphItem::Kind::kEnter, module, args});
    auto results = IsLeaf(module) ? CallLeaf(module, args) : CallComposite(module, args);
    if (!results.ok()) return results;
    graph_.items.push_back({GraphItem::Kind::kExit, module, *results});
    return results;
  }

  bool IsLeaf(int module) const {
    const std::string& c = graph_.modules[module].class_name;
    return graph_.modules[module].source->forward().empty() &&
           (c == "Linear" || c == "Conv1D" || c == "Embedding" || c == "LayerNorm" ||
            IsRmsNorm(module));
  }
  bool IsRmsNorm(int module) const {
    return graph_.modules[module].class_name.ends_with("RMSNorm");
  }

  StatusOr<std::vector<ValueId>> CallLeaf(int module, const std::vector<ValueId>& args) {
    const GraphModule& m = graph_.modules[module];
    GraphOp op;
    op.module = module;
    op.in = args;
    if (m.class_name == "Linear") {
      op.kind = OpKind::kLinear;
    } else if (m.class_name == "Conv1D") {
      op.kind = OpKind::kConv1d;
    } else if (m.class_name == "Embedding") {
      op.kind = OpKind::kEmbedding;
    } else {
      op.kind = m.class_name == "LayerNorm" ? OpKind::kLayerNorm : OpKind::kRmsNorm;
    }
    const bool matrix = op.kind != OpKind::kLayerNorm && op.kind != OpKind::kRmsNorm;
    for (const pb::ModelParameter& p : m.source->params()) {
      const int index = parameter_by_path_.at(Join(m.path, p.name()));
      const int rank = matrix && p.name() == "weight" ? 2 : 1;
      if (graph_.parameters[index].shape.size() != rank) {
        return InvalidInput(
            fmt::format("{}: expected {} dimensions", Join(m.path, p.name()), rank));
      }
      op.params.push_back(index);
    }
    if (op.params.empty()) return InvalidInput(m.path + ": a " + m.class_name + " without weight");
    return AddOp(std::move(op), 1);
  }

  StatusOr<std::vector<ValueId>> CallComposite(int module, const std::vector<ValueId>& args) {
    const pb::Module& m = *graph_.modules[module].source;
    const std::string& path = graph_.modules[module].path;
    if (m.forward().empty()) {
      return InvalidInput(
          fmt::format("module \"{}\" ({}) is called but has no forward", path, m.class_()));
    }
    if (static_cast<int>(args.size()) != m.inputs_size()) {
      return InvalidInput(fmt::format("module \"{}\" takes {} arguments, is called with {}", path,
                                      m.inputs_size(), args.size()));
    }
    Scope scope;
    for (size_t i = 0; i < args.size(); ++i) Bind(scope, m.inputs(static_cast<int>(i)), args[i]);
    const std::vector<std::vector<std::string>> drops = LastUses(m);
    for (int i = 0; i < m.forward_size(); ++i) {
      const Status status = Execute(module, m.forward(i), scope);
      if (!status.ok()) return status.At(fmt::format("{} statement {}", path, i));
      for (const std::string& name : drops[i]) Unbind(scope, name);
    }
    std::vector<ValueId> results;
    for (const std::string& name : m.output()) {
      auto it = scope.find(name);
      if (it == scope.end()) {
        return InvalidInput(fmt::format("{}: output \"{}\" has no value", path, name));
      }
      results.push_back(it->second);
      Hold(it->second);
    }
    // Locals die when the function returns, in the order of their names' first appearance.
    const std::map<std::string, ValueId> ordered(scope.begin(), scope.end());
    for (const auto& [name, value] : ordered) Let(value);
    return results;
  }

  // Per statement, the names that die after it. Only for modules whose values die at last use.
  static std::vector<std::vector<std::string>> LastUses(const pb::Module& m) {
    std::vector<std::vector<std::string>> drops(m.forward_size());
    if (m.lifetime() != pb::LAST_USE) return drops;
    std::map<std::string, int> last;
    for (int i = 0; i < m.forward_size(); ++i) {
      for (const std::string& name : m.forward(i).in()) last[name] = i;
    }
    for (const auto& [name, statement] : last) {
      const pb::Statement& s = m.forward(statement);
      bool kept = false;
      for (const std::string& out : s.out()) kept |= out == name;
      for (const std::string& out : m.output()) kept |= out == name;
      if (!kept) drops[statement].push_back(name);
    }
    return drops;
  }

  // The scope takes over one holder of a value that was just made or returned.
  void Adopt(Scope& scope, const std::string& name, ValueId value) {
    auto [it, fresh] = scope.try_emplace(name, value);
    if (fresh) return;
    const ValueId old = it->second;
    it->second = value;
    Let(old);
  }
  void Bind(Scope& scope, const std::string& name, ValueId value) {
    Hold(value);
    Adopt(scope, name, value);
  }
  void Unbind(Scope& scope, const std::string& name) {
    auto it = scope.find(name);
    if (it == scope.end()) return;
    const ValueId value = it->second;
    scope.erase(it);
    Let(value);
  }

  Status Execute(int module, const pb::Statement& s, Scope& scope) {
    std::vector<ValueId> args;
    for (const std::string& name : s.in()) {
      auto it = scope.find(name);
      if (it == scope.end()) return InvalidInput("\"" + name + "\" has no value");
      args.push_back(it->second);
    }
    if (s.op() == pb::Statement::ALIAS) {
      if (args.size() != 1 || s.out_size() != 1) return InvalidInput("an alias takes 1 name to 1");
      Bind(scope, s.out(0), args[0]);
      return OkStatus();
    }
    std::vector<ValueId> results;
    if (s.op() == pb::Statement::CALL) {
      auto it = module_by_path_.find(Join(graph_.modules[module].path, s.module()));
      if (it == module_by_path_.end() || s.module().empty()) {
        return InvalidInput("calls \"" + s.module() + "\", which is no child");
      }
      ASSIGN_OR_RETURN(results, Call(it->second, args));
      if (static_cast<int>(results.size()) != s.out_size()) {
        return InvalidInput(fmt::format("\"{}\" returns {} values, {} are named", s.module(),
                                        results.size(), s.out_size()));
      }
    } else {
      ASSIGN_OR_RETURN(GraphOp op, MakeOp(module, s));
      op.in = args;
      ASSIGN_OR_RETURN(results, AddOp(std::move(op), s.out_size()));
    }
    for (int i = 0; i < s.out_size(); ++i) Adopt(scope, s.out(i), results[i]);
    return OkStatus();
  }

  static bool HasFrequencies(const pb::Module& m, int64_t head_dim) {
    for (const pb::ModelBuffer& b : m.buffers()) {
      if (b.name() == "inv_freq" && b.shape_size() == 1 && 2 * b.shape(0) == head_dim) return true;
    }
    for (const pb::Module& child : m.children()) {
      if (HasFrequencies(child, head_dim)) return true;
    }
    return false;
  }

  StatusOr<GraphOp> MakeOp(int module, const pb::Statement& s) {
    static const std::map<pb::Statement::Op, OpKind> kKinds = {
        {pb::Statement::ADD, OpKind::kAdd},
        {pb::Statement::MUL, OpKind::kMul},
        {pb::Statement::RELU, OpKind::kRelu},
        {pb::Statement::GELU, OpKind::kGelu},
        {pb::Statement::GELU_NEW, OpKind::kGeluNew},
        {pb::Statement::DROPOUT, OpKind::kDropout},
        {pb::Statement::SILU, OpKind::kSilu},
        {pb::Statement::CHUNK, OpKind::kChunk},
        {pb::Statement::SPLIT_HEADS, OpKind::kSplitHeads},
        {pb::Statement::MERGE_HEADS, OpKind::kMergeHeads},
        {pb::Statement::REPEAT_KV, OpKind::kRepeatKv},
        {pb::Statement::ATTENTION, OpKind::kAttention},
        {pb::Statement::PARAM_SUM, OpKind::kParamSum},
        {pb::Statement::ROPE, OpKind::kRope},
        {pb::Statement::POSITIONS, OpKind::kPositions},
        {pb::Statement::ROTARY_TABLES, OpKind::kRotaryTables},
    };
    auto it = kKinds.find(s.op());
    if (it == kKinds.end()) return InvalidInput("has no known operation");
    GraphOp op;
    op.kind = it->second;
    op.module = module;
    op.n = op.kind == OpKind::kRotaryTables ? model_.rotary().head_dim() : s.n();
    op.causal = s.causal();
    op.p = s.p();
    op.grouped = s.grouped();
    op.backend = s.backend();
    if (op.kind == OpKind::kRotaryTables && !HasFrequencies(model_.root(), op.n)) {
      return InvalidInput(fmt::format(
          "makes rotary tables, but no module has a buffer inv_freq of [{} / 2]", op.n));
    }
    if (op.kind == OpKind::kParamSum) {
      auto p = parameter_by_path_.find(Join(graph_.modules[module].path, s.param()));
      if (p == parameter_by_path_.end()) return InvalidInput("no parameter \"" + s.param() + "\"");
      op.params.push_back(p->second);
    }
    return op;
  }

  StatusOr<std::vector<ValueId>> AddOp(GraphOp op, int outputs) {
    std::vector<GraphValue> shapes;
    const Status status = InferShapes(graph_, op, outputs, &shapes);
    if (!status.ok()) return status.At(graph_.modules[op.module].path);
    for (const GraphValue& shape : shapes) {
      op.out.push_back(NewValue(shape));
      Hold(op.out.back());
    }
    std::vector<ValueId> out = op.out;
    graph_.items.push_back({GraphItem::Kind::kOp, static_cast<int>(graph_.ops.size()), {}});
    graph_.ops.push_back(std::move(op));
    return out;
  }

  void BuildDag() {
    graph_.dag = OpDag(graph_.ops.size());
    std::vector<int> maker(graph_.values.size(), kNone);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (ValueId v : graph_.ops[i].in) {
        if (maker[v] != kNone) boost::add_edge(maker[v], i, graph_.dag);
      }
      for (ValueId v : graph_.ops[i].out) maker[v] = static_cast<int>(i);
    }
  }

  const pb::Model& model_;
  ModelGraph& graph_;
  std::unordered_map<std::string, int> module_by_path_;
  std::unordered_map<std::string, int> parameter_by_path_;
  std::vector<int> holders_;  // per value, how many names hold it
};

}  // namespace

int ModelGraph::FindModule(const std::string& path) const {
  for (size_t i = 0; i < modules.size(); ++i) {
    if (modules[i].path == path) return static_cast<int>(i);
  }
  return kNone;
}

std::string ModuleOfParameter(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

bool ModelGraph::IsAtOrBelow(int module, int ancestor) const {
  while (module != kNone && module != ancestor) module = modules[module].parent;
  return module == ancestor;
}

StatusOr<ModelGraph> BuildModuleTree(const pb::Model& model) {
  ModelGraph graph;
  RETURN_IF_ERROR(
      Flattener(model, graph).AddTree().At(model.name().empty() ? "model" : model.name()));
  return graph;
}

StatusOr<ModelGraph> BuildModelGraph(const pb::Model& model, int64_t batch, int64_t seq) {
  ModelGraph graph;
  graph.batch = batch;
  graph.seq = seq;
  RETURN_IF_ERROR(Flattener(model, graph).Run().At(model.name().empty() ? "model" : model.name()));
  return graph;
}

}  // namespace foreshard
