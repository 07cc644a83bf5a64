#include "planner/flat_wrap.h"

#include <algorithm>

#include "planner/flat_units.h"
#include "planner/lower/layout.h"

namespace foreshard {
namespace {

// A parameter as an attribute of a module.
struct Attribute {
  int module = kNone;
  int parameter = kNone;
  std::string path;
  bool flat = false;  // a wrapped module at or above its module has it
};

class FlatWrapper {
 public:
  FlatWrapper(const ModelGraph& graph, const FlatWrapRules& rules)
      : graph_(graph), rules_(rules), is_flat_(graph.parameters.size(), false) {
    for (size_t p = 0; p < graph.parameters.size(); ++p) {
      AddAttribute(static_cast<int>(p), graph.parameters[p].path);
      for (const std::string& path : graph.parameters[p].shared_with) {
        AddAttribute(static_cast<int>(p), path);
      }
    }
    // Modules are in the order in which parents come before children, as named_parameters lists
    // them.
    std::ranges::stable_sort(attributes_, {}, &Attribute::module);
  }

  StatusOr<std::vector<FlatModule>> Run(const AutoWrapPolicy& policy) {
    AutoWrap(graph_, policy, [this](int module, std::vector<int64_t>& numel) {
      wrapped_.push_back(Flatten(module));
      if (rules_.use_orig_params) LeaveShards(wrapped_.back(), numel);
    });
    wrapped_.push_back(Flatten(0));
    for (const FlatModule& flat : wrapped_) RETURN_IF_ERROR(CheckFrozen(flat));
    std::ranges::sort(wrapped_, {}, &FlatModule::module);
    return std::move(wrapped_);
  }

 private:
  void AddAttribute(int parameter, const std::string& path) {
    attributes_.push_back({graph_.FindModule(ModuleOfParameter(path)), parameter, path, false});
  }

  // Without the original parameters the flat one takes the place of attributes: a tensor that is an
  // attribute elsewhere too is none there. With them the tensors themselves are marked.
  FlatModule Flatten(int module) {
    FlatModule flat{.module = module, .members = {}};
    const std::string& path = graph_.modules[module].path;
    std::vector<bool> taken =
        rules_.use_orig_params ? is_flat_ : std::vector(is_flat_.size(), false);
    for (Attribute& a : attributes_) {
      if (a.flat || !graph_.IsAtOrBelow(a.module, module)) continue;
      a.flat = true;
      if (taken[a.parameter]) continue;
      taken[a.parameter] = true;
      is_flat_[a.parameter] = true;
      flat.members.push_back({a.parameter, a.path.substr(path.empty() ? 0 : path.size() + 1)});
    }
    return flat;
  }

  // The original parameters become views of the rank's shard: each is as large as its part there.
  void LeaveShards(const FlatModule& flat, std::vector<int64_t>& numel) const {
    const int64_t alignment = FlatAlignment(rules_.compute);
    std::vector<int64_t> starts;
    int64_t end = 0;
    for (const FlatMember& member : flat.members) {
      starts.push_back(RoundUp(end, alignment));
      end = starts.back() + Numel(graph_.parameters[member.parameter].shape);
    }
    const int64_t shard = RoundUp(end, rules_.shard_ranks) / rules_.shard_ranks;
    for (size_t i = 0; i < starts.size(); ++i) {
      int64_t& left = numel[flat.members[i].parameter];
      const OptimizerTensor part{.begin = starts[i], .end = starts[i] + left, .each = shard};
      left = part.NumelOn(rules_.rank);
    }
  }

  Status CheckFrozen(const FlatModule& flat) const {
    if (rules_.use_orig_params) return OkStatus();
    std::vector<int> parameters;
    for (const FlatMember& member : flat.members) parameters.push_back(member.parameter);
    return CheckUniform(graph_, graph_.modules[flat.module].path, parameters);
  }

  const ModelGraph& graph_;
  const FlatWrapRules& rules_;
  std::vector<Attribute> attributes_;
  std::vector<bool> is_flat_;  // by parameter
  std::vector<FlatModule> wrapped_;
};

}  // namespace

StatusOr<std::vector<FlatModule>> WrapFlat(const ModelGraph& graph, const AutoWrapPolicy& policy,
                                           const FlatWrapRules& rules) {
  return FlatWrapper(graph, rules).Run(policy);
}

}  // namespace foreshard
