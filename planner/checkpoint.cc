#include "planner/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/module_choice.h"
#include "proto/base/text.h"
#include "proto/oplib/oplib.h"

namespace foreshard {
namespace {

constexpr const char* kWhat = "checkpoint";

StatusOr<std::vector<int>> NamedModules(const ModelGraph& graph,
                                        const std::vector<std::string>& paths) {
  std::vector<int> modules;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const int module, ModuleAt(graph, path, kWhat));
    modules.push_back(module);
  }
  std::ranges::sort(modules);
  if (const auto twice = std::ranges::adjacent_find(modules); twice != modules.end()) {
    return InvalidArgument(
        fmt::format("checkpoint: module \"{}\" is named twice", graph.modules[*twice].path));
  }
  return modules;
}

StatusOr<std::vector<int>> PolicyModules(const ModelGraph& graph, const std::string& block_class,
                                         const std::string& policy) {
  if (policy == "none") return std::vector<int>{};
  if (policy == "block") return Blocks(graph, block_class, kWhat);
  if (policy.starts_with("class:")) return ModulesOfClass(graph, policy.substr(6), kWhat);
  if (policy.starts_with("pattern:")) return ModulesMatching(graph, policy.substr(8), kWhat);
  if (!policy.starts_with("every:")) {
    return InvalidArgument(fmt::format(
        "checkpoint: unknown policy \"{}\"; expected none, block, every:K, class:NAME or "
        "pattern:A,B",
        policy));
  }
  ASSIGN_OR_RETURN(const size_t k, ParseEvery(policy.substr(6), kWhat));
  ASSIGN_OR_RETURN(const std::vector<int> blocks, Blocks(graph, block_class, kWhat));
  std::vector<int> modules;
  for (size_t i = 0; i < blocks.size(); i += k) modules.push_back(blocks[i]);
  return modules;
}

// What runs again within what runs again would run three times.
Status CheckNotNested(const ModelGraph& graph, const std::vector<int>& modules) {
  std::vector<bool> chosen(graph.modules.size(), false);
  for (const int m : modules) chosen[m] = true;
  for (const int m : modules) {
    for (int outer = graph.modules[m].parent; outer != kNone; outer = graph.modules[outer].parent) {
      if (!chosen[outer]) continue;
      return InvalidArgument(fmt::format(
          "checkpoint: module \"{}\" lies within \"{}\", which is checkpointed too; name one",
          graph.modules[m].path, graph.modules[outer].path));
    }
  }
  return OkStatus();
}

// Of real models that this emulation never runs: saving them keeps nothing.
constexpr const char* kNeverRun[] = {"aten._scaled_dot_product_cudnn_attention.default",
                                     "aten._scaled_dot_product_attention_math.default",
                                     "aten.max.default",
                                     "_c10d_functional.reduce_scatter_tensor.default"};

std::vector<std::string> KnownOperators() {
  std::vector<std::string> names(std::begin(kNeverRun), std::end(kNeverRun));
  for (const oplib::KernelInfo& info : oplib::All()) {
    const bool overload = info.aten.find('.') != std::string_view::npos;
    names.push_back(fmt::format("aten.{}{}", info.aten, overload ? "" : ".default"));
  }
  return names;
}

Status CheckSaveOps(const CheckpointRequest& request) {
  const std::vector<std::string> known = KnownOperators();
  for (const std::string& op : request.save_ops) {
    if (std::ranges::find(known, op) != known.end()) continue;
    const auto nearest = NearestMatch(op, known);
    return InvalidArgument(fmt::format(
        "checkpoint: unknown operator \"{}\" to save; expected one like aten.mm.default{}", op,
        nearest ? fmt::format(" (did you mean {}?)", *nearest) : ""));
  }
  const auto multiplies = [](const std::string& op) {
    return op == "aten.mm.default" || op == "aten.addmm.default" || op == "aten.bmm.default";
  };
  if (request.save_every_second_matmul && std::ranges::none_of(request.save_ops, multiplies)) {
    return InvalidArgument(
        "checkpoint: every second matrix product is to be saved, but save_ops has none "
        "(aten.mm.default, aten.addmm.default, aten.bmm.default)");
  }
  return OkStatus();
}

Status CheckOptions(const CheckpointRequest& request, bool any) {
  const bool selective = !request.save_ops.empty() || request.save_every_second_matmul;
  const bool options =
      selective || request.reentrant || request.outside_unit || !request.early_stop;
  if (!any && options) {
    return InvalidArgument(
        "checkpoint: options, but no module to apply them to; name some, or use block");
  }
  if (request.reentrant && selective) {
    return InvalidArgument("checkpoint: save_ops need a checkpoint that is not reentrant");
  }
  return CheckSaveOps(request);
}

}  // namespace

StatusOr<std::vector<int>> CheckpointModules(const ModelGraph& graph,
                                             const std::string& block_class,
                                             const CheckpointRequest& request) {
  std::vector<int> modules;
  if (request.modules.empty()) {
    ASSIGN_OR_RETURN(modules, PolicyModules(graph, block_class, request.policy));
  } else {
    ASSIGN_OR_RETURN(modules, NamedModules(graph, request.modules));
  }
  for (const int m : modules) RETURN_IF_ERROR(CheckHasForward(graph, m, kWhat));
  RETURN_IF_ERROR(CheckNotNested(graph, modules));
  RETURN_IF_ERROR(CheckOptions(request, !modules.empty()));
  return modules;
}

const std::vector<std::string>& SelectiveSaveOps() {
  static const auto& ops =
      *new std::vector<std::string>{"aten.mm.default",
                                    "aten.addmm.default",
                                    "aten._scaled_dot_product_flash_attention.default",
                                    "aten._scaled_dot_product_efficient_attention.default",
                                    "aten._scaled_dot_product_cudnn_attention.default",
                                    "aten._scaled_dot_product_attention_math.default",
                                    "aten._scaled_dot_product_flash_attention_for_cpu.default",
                                    "aten.attention.default",
                                    "aten.max.default",
                                    "_c10d_functional.reduce_scatter_tensor.default"};
  return ops;
}

}  // namespace foreshard
