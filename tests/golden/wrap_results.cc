#include "tests/golden/wrap_results.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "planner/flat_wrap.h"
#include "tests/golden/golden_case.h"

namespace foreshard::golden {
namespace {

// isinstance(module, classes) and, where asked for, at least so many elements.
AutoWrapPolicy Lambda(const json& policy) {
  const AutoWrapPolicy classes = OfClasses(policy.at("classes"));
  const int64_t least = policy.value("min_own_params", int64_t{0});
  return [=](const WrapQuestion& q) { return classes(q) && (q.recurse || q.numel >= least); };
}

AutoWrapPolicy SizeBasedOf(const json& policy) {
  SizePolicy size{.min_num_params = policy.at("min_num_params")};
  const auto replace = [&](const char* name, std::vector<std::string>& classes) {
    if (!policy.value(name, json()).is_null()) policy.at(name).get_to(classes);
  };
  replace("force_leaf_modules", size.force_leaf_modules);
  replace("exclude_wrap_modules", size.exclude_wrap_modules);
  return SizeBased(std::move(size));
}

AutoWrapPolicy PolicyOf(const json& policy) {
  const std::string kind = policy.at("policy");
  if (kind == "always") return Always();
  if (kind == "size_based") return SizeBasedOf(policy);
  if (kind == "lambda") return Lambda(policy);
  if (kind != "or") return OfClasses(policy.at("classes"));
  std::vector<AutoWrapPolicy> parts;
  for (const json& part : policy.at("policies")) parts.push_back(PolicyOf(part));
  return AnyOf(std::move(parts));
}

json WrappedBy(const ModelGraph& graph, const std::vector<FlatModule>& modules) {
  json wrapped = json::array();
  for (const FlatModule& flat : modules) {
    const GraphModule& module = graph.modules[flat.module];
    int64_t numel = 0;
    json params = json::array();
    for (const FlatMember& member : flat.members) {
      numel += Numel(graph.parameters[member.parameter].shape);
      params.push_back(member.path);
    }
    wrapped.push_back({{"module", module.path},
                       {"class", module.class_name},
                       {"numel", numel},
                       {"params", params}});
  }
  return wrapped;
}

// What the two disagree on, or "".
std::string Difference(const ModelGraph& graph, const FlatWrapRules& rules, bool mixed,
                       const json& result) {
  AutoWrapPolicy policy = PolicyOf(result.at("policy"));
  // With mixed precision batch norms are wrapped apart, which stay in fp32.
  if (mixed) policy = AnyOf({std::move(policy), OfClasses({"BatchNorm1d"})});
  const StatusOr<std::vector<FlatModule>> modules = WrapFlat(graph, policy, rules);
  const std::string found = modules.ok() ? WrappedBy(graph, *modules).dump() : "refused";
  const bool raised = result.contains("error");
  const std::string recorded = raised ? "refused" : result.at("wrapped").dump();
  if (found == recorded) return "";
  return fmt::format("{}\n  recorded {}\n  found    {}", result.at("policy").dump(),
                     raised ? result.at("error").dump() : recorded,
                     modules.ok() ? found : modules.status().message());
}

// PyTorch's attention has an output projection of a class of its own, which no recorded policy's
// "Linear" meant; trees call it a Linear.
void NameProjections(ModelGraph& graph) {
  for (GraphModule& m : graph.modules) {
    const bool projects = m.parent != kNone && m.class_name == "Linear" &&
                          graph.modules[m.parent].class_name == "MultiheadAttention";
    if (projects) m.class_name = "NonDynamicallyQuantizableLinear";
  }
}

}  // namespace

bool IsWrapPolicy(const json& document) {
  return document.contains("case") && document.at("case").at("kind") == "wrap_policy";
}

Lines WrapDifferences(const json& document) {
  const json& options = document.at("case");
  const StatusOr<pb::Model> model = ModelOf(document);
  if (!model.ok()) return {std::string(model.status().message())};
  StatusOr<ModelGraph> graph = BuildModuleTree(*model);
  if (!graph.ok()) return {std::string(graph.status().message())};
  NameProjections(*graph);
  const json precision = options.value("mixed_precision", json::object());
  const bool mixed = !precision.value("param", json()).is_null();
  const FlatWrapRules rules = {
      .use_orig_params = options.value("use_orig_params", true),
      .compute =
          mixed ? ParseDType(precision.at("param").get<std::string>()).value() : DType::kFp32,
      .shard_ranks = options.at("world_size"),
      .rank = options.at("rank")};
  Lines differences;
  for (const json& result : document.at("wrap_results")) {
    std::string difference = Difference(*graph, rules, mixed, result);
    if (!difference.empty()) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace foreshard::golden
