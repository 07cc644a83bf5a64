#include "planner/graph/analysis.h"

#include <boost/graph/depth_first_search.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/graph/visitors.hpp>

namespace foreshard {
namespace {

bool StartsGradient(const ModelGraph& graph, const GraphOp& op) {
  for (int p : op.params) {
    if (!graph.parameters[p].frozen) return true;
  }
  for (ValueId v : op.in) {
    for (const GraphInput& input : graph.inputs) {
      if (input.value == v && input.requires_grad) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<bool> ValuesNeedingGrad(const ModelGraph& graph) {
  std::vector<boost::default_color_type> colors(graph.ops.size(), boost::white_color);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (colors[i] == boost::white_color && StartsGradient(graph, graph.ops[i])) {
      boost::depth_first_visit(graph.dag, i, boost::default_dfs_visitor(), colors.data());
    }
  }
  std::vector<bool> needs(graph.values.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (colors[i] == boost::white_color) continue;
    for (ValueId v : graph.ops[i].out) needs[v] = graph.values[v].type == ValueType::kFloat;
  }
  for (const GraphInput& input : graph.inputs) needs[input.value] = input.requires_grad;
  return needs;
}

int UnusedParameter(const ModelGraph& graph) {
  const auto reverse = boost::make_reverse_graph(graph.dag);
  std::vector<boost::default_color_type> colors(graph.ops.size(), boost::white_color);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (ValueId v : graph.ops[i].out) {
      if (v == graph.outputs[0] && colors[i] == boost::white_color) {
        boost::depth_first_visit(reverse, i, boost::default_dfs_visitor(), colors.data());
      }
    }
  }
  std::vector<bool> used(graph.parameters.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (colors[i] == boost::white_color) continue;
    for (int p : graph.ops[i].params) used[p] = true;
  }
  for (size_t p = 0; p < used.size(); ++p) {
    if (!used[p] && !graph.parameters[p].frozen) return static_cast<int>(p);
  }
  return kNone;
}

double ForwardMatmulFlops(const ModelGraph& graph) {
  double flops = 0;
  for (const GraphOp& op : graph.ops) {
    if (op.kind == OpKind::kLinear || op.kind == OpKind::kConv1d) {
      const double rows = static_cast<double>(Numel(graph.values[op.out[0]].shape)) /
                          static_cast<double>(graph.values[op.out[0]].shape.back());
      flops += 2 * rows * static_cast<double>(Numel(graph.parameters[op.params[0]].shape));
    } else if (op.kind == OpKind::kAttention) {
      const Dims& q = graph.values[op.in[0]].shape;
      const Dims& k = graph.values[op.in[1]].shape;
      flops += 4.0 * static_cast<double>(Numel(q)) * static_cast<double>(k[2]);
    }
  }
  return flops;
}

}  // namespace foreshard
