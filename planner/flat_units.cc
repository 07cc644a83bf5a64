#include "planner/flat_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "proto/strategy.h"

namespace foreshard {
namespace {

// Whether gathering the unit is no part of what a checkpoint runs again.
bool IsGatheredOutside(const ModelGraph& graph, const Unit& unit, int checkpointed, bool outside) {
  const int module = unit.modules.front();
  if (module == checkpointed) return !outside;
  return !graph.IsAtOrBelow(module, checkpointed);
}

}  // namespace

Status CheckUniform(const ModelGraph& graph, const std::string& unit,
                    std::span<const int> parameters) {
  for (const int p : parameters) {
    const GraphParameter& first = graph.parameters[parameters.front()];
    const GraphParameter& other = graph.parameters[p];
    if (other.frozen == first.frozen) continue;
    const GraphParameter& frozen = first.frozen ? first : other;
    const GraphParameter& trained = first.frozen ? other : first;
    return InvalidArgument(
        fmt::format("wrap: unit {} has a frozen parameter, {}, and a trained one, {}, which "
                    "PyTorch cannot make "
                    "flat; turn use_orig_params on or wrap them apart",
                    unit, frozen.path, trained.path));
  }
  return OkStatus();
}

Status CheckReentrant(const ModelGraph& graph, const std::vector<Unit>& units,
                      const ForwardChoices& forward) {
  if (!forward.checkpoint.reentrant) return OkStatus();
  for (const Unit& unit : units) {
    for (const int c : forward.checkpointed) {
      if (!IsGatheredOutside(graph, unit, c, forward.checkpoints_outside)) continue;
      const auto within = std::ranges::count_if(
          unit.parameters, [&](int p) { return graph.IsAtOrBelow(graph.parameters[p].module, c); });
      if (within == 0 || within == std::ssize(unit.parameters)) continue;
      return InvalidArgument(fmt::format(
          "checkpoint: unit {} has parameters within and without the reentrant checkpoint of {}, "
          "whose backward would free them all in PyTorch; wrap that module or use a non-reentrant "
          "checkpoint",
          unit.name, graph.modules[c].path));
    }
  }
  return OkStatus();
}

StatusOr<std::vector<Unit>> MakeFlatUnits(const ModelGraph& graph, std::vector<WrapRequest> calls,
                                          bool use_orig_params) {
  const auto is_root = [](const WrapRequest& call) {
    return call.modules == std::vector<std::string>{""};
  };
  for (const WrapRequest& call : calls) {
    if (call.modules.size() <= 1) continue;
    return InvalidArgument(fmt::format(
        "wrap: a unit of FSDP1 is one module, and a call names {}, the first of them \"{}\"",
        call.modules.size(), call.modules.front()));
  }
  if (std::none_of(calls.begin(), calls.end(), is_root)) calls.push_back({{""}, std::nullopt});
  // Children before their parents, the model last.
  std::stable_sort(calls.begin(), calls.end(), [&](const WrapRequest& a, const WrapRequest& b) {
    if (a.modules.empty() || b.modules.empty()) return false;
    return graph.FindModule(a.modules[0]) > graph.FindModule(b.modules[0]);
  });
  ASSIGN_OR_RETURN(std::vector<Unit> units, MakeUnits(graph, calls));
  for (Unit& unit : units) {
    std::sort(unit.parameters.begin(), unit.parameters.end());
    if (!use_orig_params) RETURN_IF_ERROR(CheckUniform(graph, unit.name, unit.parameters));
  }
  return units;
}

std::vector<UnitRules> FlatUnitRules(const std::vector<Unit>& units, pb::Strategy strategy) {
  std::vector<UnitRules> rules(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (!ReshardsAfterForward(strategy) || units[u].is_root) rules[u].reshard_to = 1;
  }
  return rules;
}

}  // namespace foreshard
