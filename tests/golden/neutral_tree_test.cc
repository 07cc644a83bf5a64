#include "planner/families/neutral_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "proto/model.pb.h"

namespace foreshard {
namespace {

using ::testing::HasSubstr;

constexpr char kTree[] = R"({
  "batch": 1, "seq": 4, "vocab": 8,
  "inputs": [{"name": "t", "shape": [1, 4], "dtype": "int64"},
             {"name": "p", "shape": [1, 4], "dtype": "int64"},
             {"name": "x", "shape": [6], "dtype": "fp32"}],
  "tree": {"name": "", "class": "Sequential", "params": [], "children": [
    {"name": "0", "class": "RMSNorm", "children": [],
     "params": [{"name": "weight", "shape": [6], "requires_grad": false, "tie": null}]},
    {"name": "1", "class": "Block", "params": [], "children": [], "inputs": ["x"], "output": "y",
     "forward": [{"op": "sdpa", "in": ["x", "x", "x"], "out": "y", "causal": true, "gqa": true,
                  "backend": "flash"}]}]}})";

TEST(NeutralTree, ReadsATree) {
  const StatusOr<pb::Model> model = ModelFromNeutralTree(kTree, "folder/two.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->name(), "two");
  EXPECT_EQ(model->vocab_size(), 8);
  EXPECT_EQ(model->inputs(0).kind(), pb::ModelInput::TOKENS);
  EXPECT_EQ(model->inputs(1).kind(), pb::ModelInput::POSITIONS);
  EXPECT_EQ(model->inputs(2).kind(), pb::ModelInput::FLOATS);
  EXPECT_EQ(model->inputs(2).shape(0), 6);
  const pb::Module& norm = model->root().children(0);
  EXPECT_EQ(norm.eps(), 1e-5);
  EXPECT_FALSE(norm.python_norm());
  EXPECT_TRUE(norm.params(0).frozen());
  const pb::Statement& attention = model->root().children(1).forward(0);
  EXPECT_EQ(attention.op(), pb::Statement::ATTENTION);
  EXPECT_TRUE(attention.causal());
  EXPECT_TRUE(attention.grouped());
  EXPECT_EQ(attention.backend(), "flash");
}

TEST(NeutralTree, SequentialCallsItsChildrenInOrder) {
  const StatusOr<pb::Model> model = ModelFromNeutralTree(kTree, "two.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const pb::Module& root = model->root();
  ASSERT_EQ(root.forward_size(), 2);
  EXPECT_EQ(root.forward(0).module(), "0");
  EXPECT_EQ(root.forward(1).module(), "1");
  EXPECT_EQ(root.forward(1).in(0), root.forward(0).out(0));
  EXPECT_EQ(root.output(0), root.forward(1).out(0));
}

struct BadTree {
  const char* from;  // text of kTree
  const char* to;    // what stands there instead
  const char* message;
};

void PrintTo(const BadTree& bad, std::ostream* out) { *out << bad.to; }

class BadNeutralTree : public ::testing::TestWithParam<BadTree> {};

TEST_P(BadNeutralTree, IsRefusedWithItsPlace) {
  std::string text = kTree;
  const std::string from = GetParam().from;
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, from.size(), GetParam().to);
  const StatusOr<pb::Model> model = ModelFromNeutralTree(text, "two.json");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(model.status().message(), HasSubstr(GetParam().message));
}

constexpr BadTree kBad[] = {
    {"{", "", "not JSON"},
    {"\"tree\"", "\"wood\"", "expected a member \"tree\""},
    {"[6]", "[-6]", "/inputs/2/shape/0: found -6"},
    {"[1, 4]", "[1, 5]", "/inputs/0/shape: found [1,5]"},
    {"\"vocab\": 8", "\"vocab\": 1e99", "/vocab: found 1e+99, expected an integer"},
    {"\"seq\": 4", "\"seq\": 18446744073709551615", "/seq"},
    {"false", "\"no\"", "/tree/children/0/params/0/requires_grad: found \"no\""},
    {"\"sdpa\"", "\"conv\"", "/tree/children/1/forward/0/op: found \"conv\", expected one of call"},
    {"\"gqa\": true", "\"gqa\": 3", "/tree/children/1/forward/0/gqa: found 3"},
    {"\"params\": []", "\"params\": 7", "/tree/params: found 7, expected an array"},
    {"\"in\": [", "\"in\": [3, ", "/tree/children/1/forward/0/in/0: found 3"},
};
INSTANTIATE_TEST_SUITE_P(Fields, BadNeutralTree, ::testing::ValuesIn(kBad));

TEST(NeutralTree, RefusesBottomlessTrees) {
  std::string tree;
  for (int i = 0; i < 20000; ++i) {
    tree += R"({"name": "a", "class": "B", "params": [], "children": [)";
  }
  for (int i = 0; i < 20000; ++i) tree += "]}";
  const StatusOr<pb::Model> model = ModelFromNeutralTree(
      R"({"batch": 1, "seq": 1, "inputs": [], "tree": )" + tree + "}", "deep.json");
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("at most 64 levels"));
}

}  // namespace
}  // namespace foreshard
