#include "planner/module_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Matching(const std::string& patterns) {
  const pb::Model model = TreeModel({.blocks = 2});
  const ModelGraph graph = BuildModelGraph(model, 1, 2).value();
  const std::vector<int> modules = ModulesMatching(graph, patterns, "wrap").value();
  std::vector<std::string> paths;
  for (const int m : modules) paths.push_back(graph.modules[m].path);
  return paths;
}

TEST(Path, WithoutAStarMatchesItself) {
  EXPECT_TRUE(MatchesPath("layers.0", "layers.0"));
  EXPECT_FALSE(MatchesPath("layers.0", "layers.01"));
  EXPECT_FALSE(MatchesPath("layers.0", "layers"));
  EXPECT_TRUE(MatchesPath("", ""));
  EXPECT_FALSE(MatchesPath("", "a"));
}

TEST(Path, AStarStaysWithinAName) {
  EXPECT_TRUE(MatchesPath("layers.*", "layers.12"));
  EXPECT_FALSE(MatchesPath("layers.*", "layers.12.mlp"));
  EXPECT_TRUE(MatchesPath("layers.*.mlp", "layers.12.mlp"));
  EXPECT_TRUE(MatchesPath("*_proj", "q_proj"));
  EXPECT_TRUE(MatchesPath("l*s", "layers"));
  EXPECT_TRUE(MatchesPath("l*s", "ls"));
  EXPECT_FALSE(MatchesPath("*", "a.b"));
}

TEST(Path, TwoStarsCrossDots) {
  EXPECT_TRUE(MatchesPath("**", "layers.0.mlp"));
  EXPECT_TRUE(MatchesPath("**", ""));
  EXPECT_TRUE(MatchesPath("**.mlp", "layers.0.mlp"));
  EXPECT_FALSE(MatchesPath("**.mlp", "layers.0.mlp.up"));
  EXPECT_TRUE(MatchesPath("a**c*e", "a.b.cde"));
  EXPECT_FALSE(MatchesPath("a**c*e", "a.b.c.e"));
}

TEST(ModulesMatching, AreInTheModelsOrderAndEachOnce) {
  EXPECT_THAT(Matching("layers.*"), ElementsAre("layers.0", "layers.1"));
  EXPECT_THAT(Matching("head,layers.*.w1,**.w1"),
              ElementsAre("layers.0.w1", "layers.1.w1", "head"));
}

TEST(ModulesMatching, EachPatternFitsSome) {
  const pb::Model model = TreeModel({.blocks = 2});
  const ModelGraph graph = BuildModelGraph(model, 1, 2).value();
  for (const char* pattern : {"layer.*", "w1", "", "Layers.*"}) {
    const auto modules = ModulesMatching(graph, std::string("layers.*,") + pattern, "checkpoint");
    ASSERT_FALSE(modules.ok()) << pattern;
    EXPECT_EQ(modules.status().message(), std::string("checkpoint: no module's path fits \"") +
                                              pattern + "\"; * stands for one name, ** for any");
  }
}

TEST(ModuleAt, SuggestsWhatWasMeant) {
  const pb::Model model = TreeModel({.blocks = 2});
  const ModelGraph graph = BuildModelGraph(model, 1, 2).value();
  EXPECT_EQ(ModuleAt(graph, "", "wrap").value(), 0);
  EXPECT_THAT(ModuleAt(graph, "hed", "wrap").status().message(),
              HasSubstr("wrap: the model has no module \"hed\" (did you mean head?)"));
}

}  // namespace
}  // namespace foreshard
