#include "planner/wrap.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/module_choice.h"

namespace foreshard {
namespace {

constexpr const char* kWhat = "wrap";

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
        own_[graph.FindModule(ModuleOfParameter(path))].push_back(static_cast<int>(p));
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
