#include "planner/flat_units.h"

#include <fmt/format.h>

#include <algorithm>

namespace foreshard {
namespace {

Status CheckUniform(const ModelGraph& graph, const Unit& unit) {
  for (int p : unit.parameters) {
    const GraphParameter& first = graph.parameters[unit.parameters.front()];
    const GraphParameter& other = graph.parameters[p];
    if (other.frozen == first.frozen) continue;
    const GraphParameter& frozen = first.frozen ? first : other;
    const GraphParameter& trained = first.frozen ? other : first;
    return InvalidArgument(
        fmt::format("wrap: unit {} has a frozen parameter, {}, and a trained one, {}, which "
                    "PyTorch cannot make "
                    "flat; turn use_orig_params on or wrap them apart",
                    unit.name, frozen.path, trained.path));
  }
  return OkStatus();
}

}  // namespace

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
    if (!use_orig_params) RETURN_IF_ERROR(CheckUniform(graph, unit));
  }
  return units;
}

std::vector<UnitRules> FlatUnitRules(const std::vector<Unit>& units, pb::Strategy strategy) {
  const bool frees = strategy == pb::FULL_SHARD || strategy == pb::HYBRID_SHARD;
  std::vector<UnitRules> rules(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    if (!frees || units[u].is_root) rules[u].reshard_to = 1;
  }
  return rules;
}

}  // namespace foreshard
