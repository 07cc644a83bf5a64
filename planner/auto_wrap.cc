#include "planner/auto_wrap.h"

#include <algorithm>

namespace foreshard {
namespace {

class Walk {
 public:
  Walk(const ModelGraph& graph, const AutoWrapPolicy& policy) : graph_(graph), policy_(policy) {
    children_.resize(graph.modules.size());
    for (size_t m = 1; m < graph.modules.size(); ++m) {
      children_[graph.modules[m].parent].push_back(static_cast<int>(m));
    }
    CountElements();
  }

  std::vector<int> Run() {
    Wrap(0);
    return std::move(wrapped_);
  }

 private:
  // Of each module all parameters below it, a tensor that it reaches twice once.
  void CountElements() {
    numel_.resize(graph_.modules.size(), 0);
    for (const GraphParameter& p : graph_.parameters) {
      std::vector<int> owners;
      AddAncestors(p.module, owners);
      for (const std::string& path : p.shared_with) {
        const size_t dot = path.rfind('.');
        AddAncestors(graph_.FindModule(dot == std::string::npos ? "" : path.substr(0, dot)),
                     owners);
      }
      for (const int m : owners) numel_[m] += Numel(p.shape);
    }
  }

  void AddAncestors(int module, std::vector<int>& owners) const {
    for (int m = module; m != kNone; m = graph_.modules[m].parent) {
      if (std::ranges::find(owners, m) == owners.end()) owners.push_back(m);
    }
  }

  // Elements wrapped at or below the module.
  int64_t Wrap(int module) {
    const GraphModule& m = graph_.modules[module];
    if (!policy_(m, /*recurse=*/true, numel_[module])) return 0;
    int64_t done = 0;
    for (const int child : children_[module]) done += Wrap(child);
    if (module == 0 || !policy_(m, /*recurse=*/false, numel_[module] - done)) return done;
    wrapped_.push_back(module);
    return numel_[module];
  }

  const ModelGraph& graph_;
  const AutoWrapPolicy& policy_;
  std::vector<std::vector<int>> children_;
  std::vector<int64_t> numel_;
  std::vector<int> wrapped_;
};

}  // namespace

std::vector<int> AutoWrap(const ModelGraph& graph, const AutoWrapPolicy& policy) {
  return Walk(graph, policy).Run();
}

AutoWrapPolicy SizeBased(int64_t min_numel) {
  return [min_numel](const GraphModule& module, bool recurse, int64_t numel) {
    const std::string& c = module.class_name;
    const bool barred =
        recurse ? c == "MultiheadAttention" : c == "ModuleList" || c == "ModuleDict";
    return numel >= min_numel && !barred;
  };
}

AutoWrapPolicy OfClasses(std::vector<std::string> classes) {
  return [classes = std::move(classes)](const GraphModule& module, bool recurse, int64_t) {
    return recurse || std::ranges::find(classes, module.class_name) != classes.end();
  };
}

}  // namespace foreshard
