#include "planner/auto_wrap.h"

#include <algorithm>
#include <utility>

namespace foreshard {
namespace {

class Walk {
 public:
  Walk(const ModelGraph& graph, const AutoWrapPolicy& policy, const AfterWrap& after_wrap)
      : graph_(graph), policy_(policy), after_wrap_(after_wrap) {
    children_.resize(graph.modules.size());
    for (size_t m = 1; m < graph.modules.size(); ++m) {
      children_[graph.modules[m].parent].push_back(static_cast<int>(m));
    }
    below_.resize(graph.modules.size());
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      numel_.push_back(Numel(graph.parameters[p].shape));
      for (const int m : Owners(graph.parameters[p])) below_[m].push_back(static_cast<int>(p));
    }
  }

  std::vector<int> Run() {
    Wrap(0);
    return std::move(wrapped_);
  }

 private:
  // Every module that reaches the tensor, by whatever path, once.
  std::vector<int> Owners(const GraphParameter& p) const {
    std::vector<int> owners;
    AddAncestors(p.module, owners);
    for (const std::string& path : p.shared_with) {
      AddAncestors(graph_.FindModule(ModuleOfParameter(path)), owners);
    }
    return owners;
  }

  void AddAncestors(int module, std::vector<int>& owners) const {
    for (int m = module; m != kNone; m = graph_.modules[m].parent) {
      if (std::ranges::find(owners, m) == owners.end()) owners.push_back(m);
    }
  }

  int64_t NumelOf(int module) const {
    int64_t sum = 0;
    for (const int p : below_[module]) sum += numel_[p];
    return sum;
  }

  // Elements wrapped at or below the module.
  int64_t Wrap(int module) {
    const GraphModule& m = graph_.modules[module];
    const int64_t before = NumelOf(module);
    if (!policy_({m, /*recurse=*/true, before, before})) return 0;
    int64_t done = 0;
    for (const int child : children_[module]) done += Wrap(child);
    if (module == 0 || !policy_({m, /*recurse=*/false, before - done, NumelOf(module)})) {
      return done;
    }
    wrapped_.push_back(module);
    if (after_wrap_) after_wrap_(module, numel_);
    return before;
  }

  const ModelGraph& graph_;
  const AutoWrapPolicy& policy_;
  const AfterWrap& after_wrap_;
  std::vector<std::vector<int>> children_;  // by module
  std::vector<std::vector<int>> below_;     // by module: parameters at any depth
  std::vector<int64_t> numel_;              // by parameter
  std::vector<int> wrapped_;
};

bool Contains(const std::vector<std::string>& classes, const GraphModule& module) {
  return std::ranges::find(classes, module.class_name) != classes.end();
}

}  // namespace

std::vector<int> AutoWrap(const ModelGraph& graph, const AutoWrapPolicy& policy,
                          const AfterWrap& after_wrap) {
  return Walk(graph, policy, after_wrap).Run();
}

AutoWrapPolicy SizeBased(SizePolicy policy) {
  return [policy = std::move(policy)](const WrapQuestion& q) {
    const auto& barred = q.recurse ? policy.force_leaf_modules : policy.exclude_wrap_modules;
    return q.nonwrapped_numel >= policy.min_num_params && !Contains(barred, q.module);
  };
}

AutoWrapPolicy OfClasses(std::vector<std::string> classes) {
  return [classes = std::move(classes)](const WrapQuestion& q) {
    return q.recurse || Contains(classes, q.module);
  };
}

AutoWrapPolicy OfModules(const ModelGraph& graph, std::vector<int> modules) {
  const GraphModule* first = graph.modules.data();
  return [first, modules = std::move(modules)](const WrapQuestion& q) {
    return q.recurse || std::ranges::binary_search(modules, static_cast<int>(&q.module - first));
  };
}

AutoWrapPolicy Always() {
  return [](const WrapQuestion&) { return true; };
}

AutoWrapPolicy AnyOf(std::vector<AutoWrapPolicy> parts) {
  return [parts = std::move(parts)](const WrapQuestion& q) {
    return std::ranges::any_of(parts, [&](const AutoWrapPolicy& part) { return part(q); });
  };
}

}  // namespace foreshard
