#include "planner/auto_wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/wrap.h"
#include "planner/wrap_policy.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::HasSubstr;

std::vector<std::string> Calls(const PlanRequest& request, const pb::Model& model) {
  const ModelGraph graph = BuildModuleTree(model).value();
  std::vector<std::string> calls;
  const std::vector<WrapRequest> made = WrapCalls(graph, model.block_class(), request).value();
  for (const WrapRequest& call : made) calls.push_back(call.modules.front());
  return calls;
}

std::vector<std::string> Calls(const std::string& wrap, const pb::Model& model) {
  PlanRequest request;
  request.wrap = wrap;
  return Calls(request, model);
}

std::string Refusal(const PlanRequest& request) {
  const pb::Model model = TreeModel({.blocks = 2});
  const ModelGraph graph = BuildModuleTree(model).value();
  const auto calls = WrapCalls(graph, model.block_class(), request);
  EXPECT_FALSE(calls.ok()) << request.wrap;
  return calls.ok() ? "" : calls.status().message();
}

std::string Refusal(const std::string& wrap) {
  PlanRequest request;
  request.wrap = wrap;
  return Refusal(request);
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

TEST(WrapAlways, TakesEveryModuleThatHoldsSomethingOfItsOwn) {
  // Of a block the linears and the norm hold all; the list of blocks holds nothing.
  EXPECT_THAT(
      Calls("always", TreeModel({.blocks = 1})),
      ElementsAre("emb", "layers.0.norm", "layers.0.w1", "layers.0.w2", "norm", "head", ""));
}

TEST(WrapOr, TakesWhatEitherTakes) {
  const pb::Model model = TreeModel({.blocks = 1});
  EXPECT_THAT(Calls("class:Embedding|block", model), ElementsAre("emb", "layers.0", ""));
  // The class is looked for inside of what is too small to be walked into by size, so the norm's 16
  // are gone from the block's 528 when the size decides about it.
  EXPECT_THAT(Calls("size:513|class:LayerNorm", model), ElementsAre("layers.0.norm", "norm", ""));
  EXPECT_THAT(Calls("size:512|class:LayerNorm", model),
              ElementsAre("layers.0.norm", "layers.0", "norm", ""));
}

TEST(WrapOr, RefusesWhatStandsAlone) {
  for (const char* alone : {"titan", "whole", "every:2"}) {
    EXPECT_THAT(Refusal(std::string("size:10|") + alone), HasSubstr("stands alone"));
  }
  EXPECT_THAT(Refusal("block|sise:10"), HasSubstr("unknown policy \"sise:10\""));
  EXPECT_THAT(Refusal("block|"), HasSubstr("unknown policy \"\""));
}

TEST(WrapSize, HasClassesThatAreNotEntered) {
  PlanRequest request;
  request.wrap = "size:80";
  request.force_leaf_modules = {"Block"};
  EXPECT_THAT(Calls(request, TreeModel({.blocks = 1})), ElementsAre("emb", "head", ""));
}

TEST(WrapSize, HasClassesThatAreNotWrapped) {
  const pb::Model model = TreeModel({.blocks = 1});
  PlanRequest request;
  request.wrap = "size:80";
  request.exclude_wrap_modules = {"Linear", "ModuleList"};
  EXPECT_THAT(Calls(request, model), ElementsAre("emb", "layers.0", ""));
  request.exclude_wrap_modules = {"Linear", "Block"};  // and no more the lists
  EXPECT_THAT(Calls(request, model), ElementsAre("emb", "layers", ""));
}

TEST(WrapSize, AloneHasSetsOfClasses) {
  PlanRequest request;
  request.wrap = "block|always";
  request.force_leaf_modules.emplace();
  EXPECT_THAT(Refusal(request),
              HasSubstr("force-leaf: an argument of --wrap size:N, found --wrap block|always"));
}

}  // namespace
}  // namespace foreshard
