#include "planner/wrap.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/auto_wrap.h"
#include "planner/module_choice.h"
#include "proto/base/units_text.h"

namespace foreshard {
namespace {

// Calls on runs of `per_unit` neighbouring blocks.
std::vector<WrapRequest> GroupBlocks(const ModelGraph& graph, const std::vector<int>& blocks,
                                     size_t per_unit, std::optional<Reshard> reshard) {
  std::vector<WrapRequest> calls;
  for (size_t i = 0; i < blocks.size(); i += per_unit) {
    WrapRequest call;
    for (size_t j = i; j < std::min(i + per_unit, blocks.size()); ++j) {
      call.modules.push_back(graph.modules[blocks[j]].path);
    }
    call.reshard_after_forward = reshard;
    calls.push_back(std::move(call));
  }
  return calls;
}

bool IsUnder(const ModelGraph& graph, int module, const std::vector<int>& ancestors) {
  for (int m = module; m != kNone; m = graph.modules[m].parent) {
    if (std::find(ancestors.begin(), ancestors.end(), m) != ancestors.end()) return true;
  }
  return false;
}

// Embedding alone; blocks; final norm and head together and kept; the (mostly empty) rest. Tied
// weights put embedding, norm and head in one unit.
StatusOr<std::vector<WrapRequest>> TitanCalls(const ModelGraph& graph,
                                              const std::vector<int>& blocks,
                                              std::optional<Reshard> reshard) {
  int embedding = kNone;
  int norm = kNone;
  int head = kNone;
  for (size_t i = 1; i < graph.modules.size(); ++i) {
    const int m = static_cast<int>(i);
    const std::string& c = graph.modules[m].class_name;
    if (IsUnder(graph, m, blocks)) continue;
    if (c == "Embedding" && embedding == kNone) embedding = m;
    if (c == "LayerNorm" || c.ends_with("RMSNorm")) norm = m;
    if (c == "Linear") head = m;
  }
  if (embedding == kNone || norm == kNone || head == kNone) {
    return InvalidArgument(
        "wrap: titan needs an embedding, a final norm and a head outside the blocks; use block");
  }
  bool tied = false;
  for (const GraphParameter& p : graph.parameters) tied |= !p.shared_with.empty();
  const auto path = [&](int m) { return graph.modules[m].path; };
  std::vector<WrapRequest> calls;
  if (!tied) calls.push_back({{path(embedding)}, reshard});
  for (WrapRequest& call : GroupBlocks(graph, blocks, 1, reshard)) calls.push_back(std::move(call));
  std::vector<std::string> last = {path(norm), path(head)};
  if (tied) last.insert(last.begin(), path(embedding));
  calls.push_back({std::move(last), false});
  return calls;
}

constexpr const char* kWhat = "wrap";
constexpr int64_t kMaxElements = 1'000'000'000'000'000;  // more than any model has

std::vector<WrapRequest> CallEach(const ModelGraph& graph, const std::vector<int>& modules,
                                  std::optional<Reshard> reshard) {
  return GroupBlocks(graph, modules, 1, reshard);
}

StatusOr<std::vector<WrapRequest>> ClassCalls(const ModelGraph& graph, const std::string& classes,
                                              std::optional<Reshard> reshard) {
  const std::vector<std::string> names = SplitAtCommas(classes);
  for (const std::string& name : names) {
    RETURN_IF_ERROR(ModulesOfClass(graph, name, kWhat).status());
  }
  return CallEach(graph, AutoWrap(graph, OfClasses(names)), reshard);
}

// "100M" as 100,000,000; also K and B.
StatusOr<int64_t> ParseElements(std::string text) {
  int64_t scale = 1;
  for (const auto& [suffix, factor] :
       {std::pair{'K', int64_t{1'000}}, {'M', int64_t{1'000'000}}, {'B', int64_t{1'000'000'000}}}) {
    if (!text.ends_with(suffix)) continue;
    scale = factor;
    text.pop_back();
    break;
  }
  ASSIGN_OR_RETURN(const int64_t count, ParseCount(text));
  if (count < 1 || count > kMaxElements / scale) return InvalidArgument("out of range");
  return count * scale;
}

StatusOr<std::vector<WrapRequest>> SizeCalls(const ModelGraph& graph, const std::string& size,
                                             std::optional<Reshard> reshard) {
  const StatusOr<int64_t> numel = ParseElements(size);
  if (!numel.ok()) {
    return InvalidArgument(
        fmt::format("wrap: \"size:{}\" wants a number of elements, as 100M", size));
  }
  return CallEach(graph, AutoWrap(graph, SizeBased(*numel)), reshard);
}

StatusOr<std::vector<WrapRequest>> PatternCalls(const ModelGraph& graph,
                                                const std::string& patterns,
                                                std::optional<Reshard> reshard) {
  ASSIGN_OR_RETURN(const std::vector<int> modules, ModulesMatching(graph, patterns, kWhat));
  for (const int m : modules) RETURN_IF_ERROR(CheckHasForward(graph, m, kWhat));
  const auto fits = [&](const GraphModule& m, bool recurse, int64_t) {
    const int index = static_cast<int>(&m - graph.modules.data());
    return recurse || std::ranges::binary_search(modules, index);
  };
  return CallEach(graph, AutoWrap(graph, fits), reshard);
}

StatusOr<std::vector<WrapRequest>> PolicyCalls(const ModelGraph& graph,
                                               const std::string& block_class,
                                               const PlanRequest& request) {
  const std::string& policy = request.wrap;
  const std::optional<Reshard> reshard = request.reshard_after_forward;
  if (policy == "whole") return std::vector<WrapRequest>{};
  if (policy.starts_with("class:")) return ClassCalls(graph, policy.substr(6), reshard);
  if (policy.starts_with("size:")) return SizeCalls(graph, policy.substr(5), reshard);
  if (policy.starts_with("pattern:")) return PatternCalls(graph, policy.substr(8), reshard);
  const bool every = policy.starts_with("every:");
  if (policy != "block" && policy != "titan" && !every) {
    return InvalidArgument(fmt::format(
        "wrap: unknown policy \"{}\"; expected block, every:K, whole, class:A,B, titan, "
        "size:N or pattern:A,B",
        policy));
  }
  size_t per_unit = 1;
  if (every) {
    ASSIGN_OR_RETURN(per_unit, ParseEvery(policy.substr(6), kWhat));
  }
  ASSIGN_OR_RETURN(const std::vector<int> blocks, Blocks(graph, block_class, kWhat));
  if (policy == "titan") return TitanCalls(graph, blocks, reshard);
  return GroupBlocks(graph, blocks, per_unit, reshard);
}

class UnitMaker {
 public:
  explicit UnitMaker(const ModelGraph& graph)
      : graph_(graph), wrapped_(graph.modules.size(), false) {
    own_.resize(graph.modules.size());
    children_.resize(graph.modules.size());
    for (size_t i = 1; i < graph.modules.size(); ++i) {
      children_[graph.modules[i].parent].push_back(static_cast<int>(i));
    }
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      own_[graph.parameters[p].module].push_back(static_cast<int>(p));
      for (const std::string& path : graph.parameters[p].shared_with) {
        const size_t dot = path.rfind('.');
        const int module = graph.FindModule(dot == std::string::npos ? "" : path.substr(0, dot));
        own_[module].push_back(static_cast<int>(p));
      }
    }
  }

  StatusOr<Unit> Make(const WrapRequest& call) {
    Unit unit;
    unit.reshard_after_forward = call.reshard_after_forward;
    for (const std::string& path : call.modules) {
      ASSIGN_OR_RETURN(const int module, ModuleAt(graph_, path, kWhat));
      RETURN_IF_ERROR(CheckModule(module, call));
      unit.modules.push_back(module);
      wrapped_[module] = true;
      unit.is_root |= module == 0;
      unit.name += (unit.name.empty() ? "" : "+") + (module == 0 ? "<root>" : path);
    }
    if (unit.modules.empty()) return InvalidArgument("wrap: a call names no module");
    for (int m : unit.modules) Collect(m, unit.parameters);
    return unit;
  }

 private:
  Status CheckModule(int module, const WrapRequest& call) {
    if (module == 0 && call.modules.size() > 1) {
      return InvalidArgument("wrap: the model itself cannot share a unit with its submodules");
    }
    RETURN_IF_ERROR(CheckHasForward(graph_, module, kWhat));
    if (wrapped_[module]) {
      return InvalidArgument(
          fmt::format("wrap: module \"{}\" is wrapped twice", graph_.modules[module].path));
    }
    return OkStatus();
  }

  // Depth first, children before their parent, stopping at modules that are units already.
  void Collect(int module, std::vector<int>& parameters) {
    for (int child : children_[module]) {
      if (!wrapped_[child]) Collect(child, parameters);
    }
    for (int p : own_[module]) {
      if (std::find(parameters.begin(), parameters.end(), p) == parameters.end()) {
        parameters.push_back(p);
      }
    }
  }

  const ModelGraph& graph_;
  std::vector<bool> wrapped_;
  std::vector<std::vector<int>> own_;       // per module, its direct parameters
  std::vector<std::vector<int>> children_;  // per module
};

Status CheckTies(const ModelGraph& graph, const std::vector<Unit>& units) {
  std::vector<const Unit*> owner(graph.parameters.size(), nullptr);
  for (const Unit& unit : units) {
    for (int p : unit.parameters) {
      if (owner[p] != nullptr) {
        return InvalidArgument(fmt::format(
            "wrap: parameter {} is shared by units {} and {}; put the modules that share it in one "
            "unit",
            graph.parameters[p].path, owner[p]->name, unit.name));
      }
      owner[p] = &unit;
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<WrapRequest>> WrapCalls(const ModelGraph& graph,
                                             const std::string& block_class,
                                             const PlanRequest& request) {
  if (!request.wrap_calls.empty()) return request.wrap_calls;
  ASSIGN_OR_RETURN(std::vector<WrapRequest> calls, PolicyCalls(graph, block_class, request));
  calls.push_back({{""}, request.root_reshard_after_forward});
  return calls;
}

StatusOr<std::vector<Unit>> MakeUnits(const ModelGraph& graph,
                                      const std::vector<WrapRequest>& calls) {
  UnitMaker maker(graph);
  std::vector<Unit> units;
  for (const WrapRequest& call : calls) {
    ASSIGN_OR_RETURN(Unit unit, maker.Make(call));
    // Modules without parameters of their own gather nothing; the root still frames the step.
    if (!unit.parameters.empty() || unit.is_root) units.push_back(std::move(unit));
  }
  if (units.empty() || !units.back().is_root) {
    return InvalidArgument("wrap: the last call must be on the model itself");
  }
  RETURN_IF_ERROR(CheckTies(graph, units));
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
    return *std::min_element(a.modules.begin(), a.modules.end()) <
           *std::min_element(b.modules.begin(), b.modules.end());
  });
  // A root without parameters gathers nothing. It comes last, so that plans need not list it.
  if (units.front().is_root && units.front().parameters.empty()) {
    std::rotate(units.begin(), units.begin() + 1, units.end());
  }
  return units;
}

std::vector<int> UnitOfModules(const ModelGraph& graph, const std::vector<Unit>& units) {
  std::vector<int> unit_of(graph.modules.size(), kNone);
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].parameters.empty()) continue;
    for (int m : units[u].modules) unit_of[m] = static_cast<int>(u);
  }
  for (size_t m = 1; m < graph.modules.size(); ++m) {
    if (unit_of[m] == kNone) unit_of[m] = unit_of[graph.modules[m].parent];
  }
  return unit_of;
}

}  // namespace foreshard
