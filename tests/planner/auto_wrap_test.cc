#include "planner/auto_wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "planner/families/neutral_tree.h"
#include "planner/wrap.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using nlohmann::json;
using testing::HasSubstr;

bool IsOneOf(const json& classes, const std::string& name) {
  return std::find(classes.begin(), classes.end(), name) != classes.end();
}

// The policy as PyTorch defines it; sets of classes that a file gives replace the default ones.
AutoWrapPolicy PolicyOf(const json& policy) {
  const std::string kind = policy.at("policy");
  if (kind == "always") return [](const GraphModule&, bool, int64_t) { return true; };
  if (kind == "or") {
    std::vector<AutoWrapPolicy> parts;
    for (const json& part : policy.at("policies")) parts.push_back(PolicyOf(part));
    return [parts](const GraphModule& m, bool recurse, int64_t numel) {
      return std::ranges::any_of(parts, [&](const auto& p) { return p(m, recurse, numel); });
    };
  }
  if (kind != "size_based") return OfClasses(policy.at("classes"));
  const int64_t least = policy.at("min_num_params");
  if (!policy.contains("force_leaf_modules") && !policy.contains("exclude_wrap_modules")) {
    return SizeBased(least);
  }
  const json leaves = policy.value("force_leaf_modules", json{"MultiheadAttention"});
  const json excluded = policy.value("exclude_wrap_modules", json{"ModuleList", "ModuleDict"});
  return [=](const GraphModule& m, bool recurse, int64_t numel) {
    return numel >= least && !IsOneOf(recurse ? leaves : excluded, m.class_name);
  };
}

// Paths of the parameters that each wrapped module holds, relative to it.
using Held = std::map<std::string, std::set<std::string>>;

Held HeldBy(const ModelGraph& graph, const std::vector<int>& wrapped) {
  Held held = {{"", {}}};
  for (const int m : wrapped) held[graph.modules[m].path];
  for (const GraphParameter& p : graph.parameters) {
    int m = p.module;
    while (m != 0 && std::ranges::find(wrapped, m) == wrapped.end()) m = graph.modules[m].parent;
    const std::string& path = graph.modules[m].path;
    held[path].insert(path.empty() ? p.path : p.path.substr(path.size() + 1));
  }
  return held;
}

Held Recorded(const json& result) {
  Held held;
  for (const json& module : result.at("wrapped")) {
    held[module.at("module")] = module.at("params").get<std::set<std::string>>();
  }
  return held;
}

class RecordedPolicies : public testing::TestWithParam<const char*> {};

TEST_P(RecordedPolicies, WrapTheSameModules) {
  const std::string path =
      std::string(FORESHARD_SOURCE_DIR "/tests/planner/data/wrap_") + GetParam() + ".json";
  const json document = json::parse(std::ifstream(path));
  const pb::Model model =
      ModelFromNeutralTree(document.at("case").at("model").dump(), path).value();
  const ModelGraph graph = BuildModuleTree(model).value();
  for (const json& result : document.at("wrap_results")) {
    EXPECT_EQ(HeldBy(graph, AutoWrap(graph, PolicyOf(result.at("policy")))), Recorded(result))
        << result.at("policy").dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedPolicies,
                         testing::Values("class_policies_gpt", "size_encoder",
                                         "size_moduledict_ownparams", "size_sequential"));

std::vector<std::string> Calls(const std::string& wrap, const pb::Model& model) {
  const ModelGraph graph = BuildModuleTree(model).value();
  PlanRequest request;
  request.wrap = wrap;
  std::vector<std::string> calls;
  const std::vector<WrapRequest> made = WrapCalls(graph, model.block_class(), request).value();
  for (const WrapRequest& call : made) calls.push_back(call.modules.front());
  return calls;
}

std::string Refusal(const std::string& wrap) {
  const pb::Model model = TreeModel({.blocks = 2});
  const ModelGraph graph = BuildModuleTree(model).value();
  PlanRequest request;
  request.wrap = wrap;
  const auto calls = WrapCalls(graph, model.block_class(), request);
  EXPECT_FALSE(calls.ok()) << wrap;
  return calls.ok() ? "" : calls.status().message();
}

using testing::ElementsAre;

TEST(WrapSize, TakesWhatReachesTheNumber) {
  // emb 80, blocks of 16 + 256 + 256, norm 16, head 80.
  const pb::Model model = TreeModel({.blocks = 1});
  EXPECT_THAT(Calls("size:257", model), ElementsAre("layers.0", ""));
  EXPECT_THAT(Calls("size:256", model), ElementsAre("layers.0.w1", "layers.0.w2", ""));
  EXPECT_THAT(Calls("size:80", model),
              ElementsAre("emb", "layers.0.w1", "layers.0.w2", "head", ""));
  EXPECT_THAT(Calls("size:100M", model), ElementsAre(""));
}

TEST(WrapSize, ReadsThousandsMillionsAndBillions) {
  const pb::Model model = TreeModel({.blocks = 1, .dim = 64});  // w1: 64 * 256 = 16,384
  EXPECT_THAT(Calls("size:16K", model), ElementsAre("layers.0.w1", "layers.0.w2", ""));
  EXPECT_THAT(Calls("size:16,385", model), ElementsAre("layers.0", ""));
  for (const char* bad : {"", "0", "M", "-1", "1.5M", "x", "99999999999999999999", "9000000B"}) {
    EXPECT_THAT(Refusal(std::string("size:") + bad),
                HasSubstr(std::string("\"size:") + bad + "\" wants a number of elements"));
  }
}

TEST(WrapPattern, CallsGoBottomUp) {
  EXPECT_THAT(Calls("pattern:layers.*,layers.*.w1", TreeModel({.blocks = 2})),
              ElementsAre("layers.0.w1", "layers.0", "layers.1.w1", "layers.1", ""));
  EXPECT_THAT(Refusal("pattern:layers.*,layer"), HasSubstr("no module's path fits \"layer\""));
  EXPECT_THAT(Refusal("pattern:layers"), HasSubstr("ModuleList and has no forward"));
}

TEST(WrapClass, TakesSeveralBottomUp) {
  EXPECT_THAT(Calls("class:Block,Linear", TreeModel({.blocks = 1})),
              ElementsAre("layers.0.w1", "layers.0.w2", "layers.0", "head", ""));
  EXPECT_THAT(Refusal("class:Block,Linaer"), HasSubstr("did you mean Linear?"));
}

}  // namespace
}  // namespace foreshard
