#include "planner/wrap_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/auto_wrap.h"
#include "planner/module_choice.h"
#include "proto/base/units_text.h"

namespace foreshard {
namespace {

constexpr const char* kWhat = "wrap";
constexpr int64_t kMaxElements = 1'000'000'000'000'000;  // more than any model has
constexpr const char* kPolicies =
    "block, every:K, whole, class:A,B, titan, size:N, pattern:A,B, always or A|B";

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
  return std::ranges::any_of(ancestors, [&](int a) { return graph.IsAtOrBelow(module, a); });
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

StatusOr<AutoWrapPolicy> ClassPolicy(const ModelGraph& graph, const std::string& classes) {
  std::vector<std::string> names = SplitAtCommas(classes);
  for (const std::string& name : names) {
    RETURN_IF_ERROR(ModulesOfClass(graph, name, kWhat).status());
  }
  return OfClasses(std::move(names));
}

StatusOr<AutoWrapPolicy> SizePolicyOf(const std::string& size, const PlanRequest& request) {
  const StatusOr<int64_t> numel = ParseElements(size);
  if (!numel.ok()) {
    return InvalidArgument(
        fmt::format("wrap: \"size:{}\" wants a number of elements, as 100M", size));
  }
  SizePolicy policy{.min_num_params = *numel};
  if (request.force_leaf_modules) policy.force_leaf_modules = *request.force_leaf_modules;
  if (request.exclude_wrap_modules) policy.exclude_wrap_modules = *request.exclude_wrap_modules;
  return SizeBased(std::move(policy));
}

StatusOr<AutoWrapPolicy> PatternPolicy(const ModelGraph& graph, const std::string& patterns) {
  ASSIGN_OR_RETURN(std::vector<int> modules, ModulesMatching(graph, patterns, kWhat));
  for (const int m : modules) RETURN_IF_ERROR(CheckHasForward(graph, m, kWhat));
  return OfModules(graph, std::move(modules));
}

// One policy of FSDP1.
StatusOr<AutoWrapPolicy> OnePolicy(const ModelGraph& graph, const std::string& block_class,
                                   const std::string& policy, const PlanRequest& request) {
  if (policy.starts_with("class:")) return ClassPolicy(graph, policy.substr(6));
  if (policy.starts_with("size:")) return SizePolicyOf(policy.substr(5), request);
  if (policy.starts_with("pattern:")) return PatternPolicy(graph, policy.substr(8));
  if (policy == "always") return Always();
  if (policy == "block") {
    RETURN_IF_ERROR(Blocks(graph, block_class, kWhat).status());
    return OfClasses({block_class});
  }
  if (policy == "whole" || policy == "titan" || policy.starts_with("every:")) {
    return InvalidArgument(fmt::format("wrap: {} stands alone, not between |", policy));
  }
  return InvalidArgument(
      fmt::format("wrap: unknown policy \"{}\"; expected {}", policy, kPolicies));
}

// Those of the wrapped modules that hold a parameter of their own.
std::vector<int> Holding(const ModelGraph& graph, const std::vector<int>& wrapped) {
  std::vector<bool> is_wrapped(graph.modules.size(), false);
  for (const int m : wrapped) is_wrapped[m] = true;
  std::vector<bool> holds(graph.modules.size(), false);
  const auto mark = [&](int module) {
    while (module != 0 && !is_wrapped[module]) module = graph.modules[module].parent;
    holds[module] = true;
  };
  for (const GraphParameter& p : graph.parameters) {
    mark(p.module);
    for (const std::string& path : p.shared_with) mark(graph.FindModule(ModuleOfParameter(path)));
  }
  std::vector<int> holding;
  std::ranges::copy_if(wrapped, std::back_inserter(holding), [&](int m) { return holds[m]; });
  return holding;
}

StatusOr<std::vector<WrapRequest>> AutoCalls(const ModelGraph& graph,
                                             const std::string& block_class,
                                             const PlanRequest& request) {
  std::vector<AutoWrapPolicy> parts;
  for (const std::string& part : SplitAt('|', request.wrap)) {
    ASSIGN_OR_RETURN(parts.emplace_back(), OnePolicy(graph, block_class, part, request));
  }
  const std::vector<int> wrapped = AutoWrap(graph, AnyOf(std::move(parts)));
  return GroupBlocks(graph, Holding(graph, wrapped), 1, request.reshard_after_forward);
}

Status CheckClassSets(const PlanRequest& request) {
  const bool by_size =
      request.wrap.starts_with("size:") || request.wrap.find("|size:") != std::string::npos;
  for (const auto& [flag, classes] : {std::pair("force-leaf", &request.force_leaf_modules),
                                      {"exclude-wrap", &request.exclude_wrap_modules}}) {
    if (!*classes) continue;
    if (!by_size) {
      return InvalidArgument(fmt::format(
          "{}: an argument of --wrap size:N, found --wrap {}; leave it out", flag, request.wrap));
    }
  }
  return OkStatus();
}

StatusOr<std::vector<WrapRequest>> PolicyCalls(const ModelGraph& graph,
                                               const std::string& block_class,
                                               const PlanRequest& request) {
  RETURN_IF_ERROR(CheckClassSets(request));
  const std::string& policy = request.wrap;
  const std::optional<Reshard> reshard = request.reshard_after_forward;
  if (policy == "whole") return std::vector<WrapRequest>{};
  const bool every = policy.starts_with("every:");
  if (policy != "block" && policy != "titan" && !every) {
    return AutoCalls(graph, block_class, request);
  }
  size_t per_unit = 1;
  if (every) {
    ASSIGN_OR_RETURN(per_unit, ParseEvery(policy.substr(6), kWhat));
  }
  ASSIGN_OR_RETURN(const std::vector<int> blocks, Blocks(graph, block_class, kWhat));
  if (policy == "titan") return TitanCalls(graph, blocks, reshard);
  return GroupBlocks(graph, blocks, per_unit, reshard);
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

}  // namespace foreshard
