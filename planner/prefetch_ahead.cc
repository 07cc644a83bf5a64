#include "planner/prefetch_ahead.h"

#include <algorithm>

namespace foreshard {
namespace {

// The modules that units were made of, once each, in the order of the first item of `kind`.
std::vector<int> UnitsInOrder(const std::vector<GraphItem>& items, GraphItem::Kind kind,
                              const std::vector<int>& unit_of) {
  std::vector<int> order;
  for (const GraphItem& item : items) {
    if (item.kind != kind) continue;
    const int unit = unit_of[item.index];
    if (unit != kNone && std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  }
  return order;
}

std::vector<int> UnitOfWrapped(const ModelGraph& graph, const std::vector<Unit>& units) {
  std::vector<int> unit_of(graph.modules.size(), kNone);
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].parameters.empty()) continue;
    for (const int m : units[u].modules) unit_of[m] = static_cast<int>(u);
  }
  return unit_of;
}

std::vector<PrefetchRequest> Lists(const ModelGraph& graph, const std::vector<Unit>& units,
                                   const std::vector<int>& order, int ahead) {
  const auto path = [&](size_t place) {
    return graph.modules[units[order[place]].modules.front()].path;
  };
  std::vector<PrefetchRequest> lists;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    PrefetchRequest& list = lists.emplace_back();
    list.module = path(i);
    for (size_t j = i + 1; j < order.size() && j - i <= static_cast<size_t>(ahead); ++j) {
      list.targets.push_back(path(j));
    }
  }
  return lists;
}

}  // namespace

void ListPrefetchAhead(const ModelGraph& graph, const std::vector<Unit>& units,
                       PlanRequest& request) {
  const std::vector<int> unit_of = UnitOfWrapped(graph, units);
  if (const int ahead = request.forward_prefetch_ahead; ahead > 0) {
    const auto order = UnitsInOrder(graph.items, GraphItem::Kind::kEnter, unit_of);
    request.forward_prefetch = Lists(graph, units, order, ahead);
  }
  if (const int ahead = request.backward_prefetch_ahead; ahead > 0) {
    const std::vector<GraphItem> reversed(graph.items.rbegin(), graph.items.rend());
    const auto order = UnitsInOrder(reversed, GraphItem::Kind::kExit, unit_of);
    request.backward_prefetch = Lists(graph, units, order, ahead);
  }
}

}  // namespace foreshard
