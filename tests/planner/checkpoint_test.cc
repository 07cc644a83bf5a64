#include "planner/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kBlocks = 5;

StatusOr<std::vector<std::string>> Chosen(const CheckpointRequest& request) {
  const pb::Model model = TreeModel({.blocks = kBlocks});
  ASSIGN_OR_RETURN(const ModelGraph graph, BuildModelGraph(model, 1, 2));
  ASSIGN_OR_RETURN(const std::vector<int> modules,
                   CheckpointModules(graph, model.block_class(), request));
  std::vector<std::string> paths;
  for (const int m : modules) paths.push_back(graph.modules[m].path);
  return paths;
}

std::vector<std::string> Paths(const std::string& policy) {
  return Chosen({.policy = policy}).value();
}

std::string Refusal(const CheckpointRequest& request) {
  const auto chosen = Chosen(request);
  EXPECT_FALSE(chosen.ok());
  if (chosen.ok()) return "";
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  return chosen.status().message();
}

TEST(Checkpoint, NoneIsTheDefault) { EXPECT_THAT(Chosen({}).value(), IsEmpty()); }

TEST(Checkpoint, BlockIsEveryBlock) {
  EXPECT_THAT(Paths("block"),
              ElementsAre("layers.0", "layers.1", "layers.2", "layers.3", "layers.4"));
}

TEST(Checkpoint, EveryKStartsAtTheFirstBlock) {
  EXPECT_THAT(Paths("every:2"), ElementsAre("layers.0", "layers.2", "layers.4"));
  EXPECT_THAT(Paths("every:3"), ElementsAre("layers.0", "layers.3"));
  EXPECT_THAT(Paths("every:9"), ElementsAre("layers.0"));
  EXPECT_EQ(Paths("every:1"), Paths("block"));
}

TEST(Checkpoint, ClassAndPatternChooseModulesWithinBlocks) {
  EXPECT_THAT(Paths("class:LayerNorm"),
              ElementsAre("layers.0.norm", "layers.1.norm", "layers.2.norm", "layers.3.norm",
                          "layers.4.norm", "norm"));
  EXPECT_THAT(Paths("pattern:layers.1.w*,layers.4"),
              ElementsAre("layers.1.w1", "layers.1.w2", "layers.4"));
}

TEST(Checkpoint, NamedModulesGoBeforeThePolicyAndAreSorted) {
  EXPECT_THAT(Chosen({.policy = "block", .modules = {"layers.3", "layers.1"}}).value(),
              ElementsAre("layers.1", "layers.3"));
}

TEST(CheckpointRefusal, UnknownPoliciesAndModules) {
  EXPECT_THAT(Refusal({.policy = "blocks"}),
              HasSubstr("unknown policy \"blocks\"; expected none, block, every:K, class:NAME or "
                        "pattern:A,B"));
  EXPECT_THAT(Refusal({.policy = "every:0"}),
              HasSubstr("checkpoint: \"every:0\" wants a whole number of blocks, at least 1"));
  EXPECT_THAT(Refusal({.policy = "class:Blok"}), HasSubstr("did you mean Block?"));
  EXPECT_THAT(Refusal({.policy = "pattern:mlp"}), HasSubstr("no module's path fits \"mlp\""));
  EXPECT_THAT(Refusal({.modules = {"layers.9"}}), HasSubstr("did you mean layers.0?"));
}

TEST(CheckpointRefusal, ListsOfModulesHaveNoForward) {
  EXPECT_THAT(Refusal({.modules = {"layers"}}),
              HasSubstr("\"layers\" is a ModuleList and has no forward; checkpoint its children"));
}

TEST(CheckpointRefusal, ModulesWithinOneAnother) {
  EXPECT_THAT(Refusal({.policy = "pattern:layers.2**"}),
              HasSubstr("\"layers.2.norm\" lies within \"layers.2\", which is checkpointed too"));
  EXPECT_THAT(Refusal({.modules = {"layers.0.w1", ""}}), HasSubstr("lies within \"\""));
  EXPECT_THAT(Refusal({.modules = {"head", "head"}}), HasSubstr("\"head\" is named twice"));
}

TEST(CheckpointRefusal, UnknownOperators) {
  EXPECT_THAT(Refusal({.policy = "block", .save_ops = {"aten.mm"}}),
              HasSubstr("unknown operator \"aten.mm\" to save"));
  EXPECT_THAT(Refusal({.policy = "block", .save_ops = {"aten.addm.default"}}),
              HasSubstr("did you mean aten.addmm.default?"));
}

TEST(CheckpointRefusal, OptionsThatWouldDoNothing) {
  const std::vector<std::string> mm = {"aten.mm.default"};
  for (const CheckpointRequest& request :
       {CheckpointRequest{.reentrant = true}, CheckpointRequest{.outside_unit = true},
        CheckpointRequest{.save_ops = mm}, CheckpointRequest{.early_stop = false}}) {
    EXPECT_THAT(Refusal(request), HasSubstr("no module to apply them to"));
  }
  EXPECT_THAT(
      Refusal(
          {.policy = "block", .save_ops = {"aten.silu.default"}, .save_every_second_matmul = true}),
      HasSubstr("every second matrix product is to be saved, but save_ops has none"));
}

TEST(CheckpointRefusal, ReentrantOnesSaveNothing) {
  EXPECT_THAT(Refusal({.policy = "block", .reentrant = true, .save_ops = {"aten.mm.default"}}),
              HasSubstr("save_ops need a checkpoint that is not reentrant"));
}

TEST(Checkpoint, SelectiveSavesOnlyKnownOperators) {
  EXPECT_THAT(
      Chosen(
          {.policy = "every:9", .save_ops = SelectiveSaveOps(), .save_every_second_matmul = true})
          .value(),
      ElementsAre("layers.0"));
}

}  // namespace
}  // namespace foreshard
