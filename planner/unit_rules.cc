#include "planner/unit_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/module_choice.h"
#include "proto/base/text.h"

namespace foreshard {
namespace {

class UnitDecider {
 public:
  UnitDecider(const ModelGraph& graph, const std::vector<Unit>& units, const PlanRequest& request,
              const Behaviour& behaviour, int shard_ranks)
      : graph_(graph),
        units_(units),
        request_(request),
        behaviour_(behaviour),
        shard_ranks_(shard_ranks) {}

  StatusOr<std::vector<UnitRules>> Decide() {
    std::vector<UnitRules> rules(units_.size());
    for (size_t u = 0; u < units_.size(); ++u) {
      ASSIGN_OR_RETURN(rules[u].reshard_to, ReshardTo(units_[u]));
    }
    for (const PrefetchRequest& p : request_.forward_prefetch) {
      ASSIGN_OR_RETURN(const int unit, UnitOf("forward-prefetch", p.module));
      ASSIGN_OR_RETURN(rules[unit].forward_prefetch, UnitsOf("forward-prefetch", p.targets));
    }
    for (const PrefetchRequest& p : request_.backward_prefetch) {
      ASSIGN_OR_RETURN(const int unit, UnitOf("backward-prefetch", p.module));
      ASSIGN_OR_RETURN(rules[unit].backward_prefetch, UnitsOf("backward-prefetch", p.targets));
    }
    for (const std::string& module : request_.sharded_in_backward) {
      ASSIGN_OR_RETURN(const int unit, UnitOf("no-unshard-in-backward", module));
      rules[unit].gathers_in_backward = false;
    }
    return rules;
  }

 private:
  // The root keeps its parameters unless told otherwise: backward starts there.
  StatusOr<int> ReshardTo(const Unit& unit) const {
    if (unit.is_root && !behaviour_.root_may_reshard) return 1;
    const int ranks = unit.reshard_after_forward.value_or(!unit.is_root).ranks;
    if (ranks == Reshard::kAll || ranks == 1) return ranks;
    if (ranks < 1 || shard_ranks_ % ranks != 0) {
      return InvalidArgument(
          fmt::format("reshard-after-forward: {} ranks, expected true, false or a number that "
                      "divides the {} ranks of a shard group",
                      ranks, shard_ranks_));
    }
    return ranks == shard_ranks_ ? Reshard::kAll : ranks;
  }

  StatusOr<int> UnitOf(const char* what, const std::string& path) const {
    const int module = graph_.FindModule(path);
    std::vector<std::string> known;
    for (size_t u = 0; u < units_.size(); ++u) {
      for (int m : units_[u].modules) {
        if (m == module) return static_cast<int>(u);
        known.push_back(graph_.modules[m].path);
      }
    }
    const auto nearest = NearestMatch(path, known);
    return InvalidArgument(
        fmt::format("{}: module \"{}\" is not wrapped{}", what, path,
                    nearest ? fmt::format(" (did you mean \"{}\"?)", *nearest) : ""));
  }

  StatusOr<std::vector<int>> UnitsOf(const char* what,
                                     const std::vector<std::string>& paths) const {
    std::vector<int> units;
    for (const std::string& path : paths) {
      ASSIGN_OR_RETURN(const int unit, UnitOf(what, path));
      units.push_back(unit);
    }
    return units;
  }

  const ModelGraph& graph_;
  const std::vector<Unit>& units_;
  const PlanRequest& request_;
  const Behaviour& behaviour_;
  const int shard_ranks_;
};

// Whether `pattern`, in which "*" stands for any characters, dots too, matches all of `path`.
bool Matches(std::string_view pattern, std::string_view path) {
  std::string across_dots;
  for (const char c : pattern) across_dots += c == '*' ? "**" : std::string(1, c);
  return MatchesPath(across_dots, path);
}

}  // namespace

StatusOr<std::vector<UnitRules>> DecideUnits(const ModelGraph& graph,
                                             const std::vector<Unit>& units,
                                             const PlanRequest& request, const Behaviour& behaviour,
                                             int shard_ranks) {
  return UnitDecider(graph, units, request, behaviour, shard_ranks).Decide();
}

// The library gathers a unit from fewer ranks as if its parts were shards, which those of a tensor
// that is cut along another dimension are not: backward would compute with mixed-up weights.
Status CheckPartsAreShards(const std::vector<Unit>& units, const std::vector<UnitRules>& rules,
                           const std::vector<int>& shard_dims) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (const int p : units[u].parameters) {
      if (rules[u].reshard_to <= 1 || shard_dims.empty() || shard_dims[p] == 0) continue;
      return InvalidArgument(
          fmt::format("shard-dim: unit {} is kept by {} ranks after forward, where PyTorch puts "
                      "parameters that "
                      "are cut along dimension {} together in the wrong order; use dimension 0, or "
                      "true or false "
                      "for reshard-after-forward",
                      units[u].name, rules[u].reshard_to, shard_dims[p]));
    }
  }
  return OkStatus();
}

StatusOr<std::vector<int>> DecideShardDims(const ModelGraph& graph,
                                           const std::vector<UnitRules>& units,
                                           const PlanRequest& request, int shard_ranks) {
  if (request.shard_placements.empty()) return std::vector<int>();
  if (std::ranges::any_of(units, [](const UnitRules& u) { return u.reshard_to > 1; })) {
    return InvalidArgument(
        "shard-dim: PyTorch cannot gather such parameters from fewer ranks than all; use "
        "reshard-after-forward true or false");
  }
  std::vector<int> dims;
  for (const GraphParameter& p : graph.parameters) {
    const int rank = p.shape.size();
    const auto row = std::find_if(request.shard_placements.begin(), request.shard_placements.end(),
                                  [&](const ShardPlacementRequest& r) {
                                    return Matches(r.parameters, p.path) &&
                                           (r.rank == 0 ? rank > r.dim : rank == r.rank);
                                  });
    const int dim = row == request.shard_placements.end() ? 0 : row->dim;
    if (dim < 0 || dim >= rank || (dim > 0 && p.shape[dim] % shard_ranks != 0)) {
      return InvalidArgument(fmt::format(
          "shard-dim: parameter {} cannot be cut along dimension {}; expected one of its {} "
          "dimensions, with a size that the {} ranks of a shard group divide",
          p.path, dim, rank, shard_ranks));
    }
    dims.push_back(dim);
  }
  return dims;
}

}  // namespace foreshard
