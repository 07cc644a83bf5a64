#include "planner/wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/families/module_builder.h"
#include "tests/planner/plan_helpers.h"
#include "tests/testing/tree_model.h"

namespace foreshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Paths = std::vector<std::string>;

PlanRequest Wrapped(const std::string& wrap) {
  PlanRequest request = SmallRequest(4);
  request.wrap = wrap;
  return request;
}

// Names of the units of the plan, in its order.
Paths UnitNames(const pb::Model& model, const PlanRequest& request) {
  Paths names;
  const pb::Plan plan = PlanOf(model, request);
  for (const pb::Unit& unit : plan.units()) names.push_back(unit.name());
  return names;
}

// Paths of the parameters of a unit in layout order.
Paths Layout(const pb::Plan& plan, const std::string& name) {
  Paths paths;
  for (const pb::Unit& unit : plan.units()) {
    if (unit.name() != name) continue;
    for (int p : unit.parameters()) paths.push_back(plan.parameters(p).path());
  }
  return paths;
}

std::string Refusal(const pb::Model& model, const PlanRequest& request) {
  const StatusOr<pb::Plan> plan = MakePlan(model, request);
  EXPECT_FALSE(plan.ok());
  if (plan.ok()) return "";
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument) << plan.status().message();
  return plan.status().message();
}

PlanRequest Calls(const std::vector<Paths>& calls) {
  PlanRequest request = SmallRequest(4);
  for (const Paths& modules : calls) request.wrap_calls.push_back({modules, {}});
  return request;
}

TEST(Wrap, BlockMakesAUnitOfEachBlockAndTheRest) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 3}), Wrapped("block")),
              ElementsAre("<root>", "layers.0", "layers.1", "layers.2"));
}

TEST(Wrap, EveryKMakesUnitsOfKBlocksAndOneOfTheRemainder) {
  const pb::Model model = TreeModel({.blocks = 5});
  EXPECT_THAT(UnitNames(model, Wrapped("every:2")),
              ElementsAre("<root>", "layers.0+layers.1", "layers.2+layers.3", "layers.4"));
  EXPECT_THAT(UnitNames(model, Wrapped("every:3")),
              ElementsAre("<root>", "layers.0+layers.1+layers.2", "layers.3+layers.4"));
  EXPECT_THAT(UnitNames(model, Wrapped("every:1")), UnitNames(model, Wrapped("block")));
}

TEST(Wrap, EveryMoreThanThereAreMakesOneUnitOfAllBlocks) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 2}), Wrapped("every:7")),
              ElementsAre("<root>", "layers.0+layers.1"));
}

TEST(Wrap, WholeMakesTheModelOneUnit) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 2}), Wrapped("whole")), ElementsAre("<root>"));
}

TEST(Wrap, ClassMakesAUnitOfEachModuleOfThatClass) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 1}), Wrapped("class:Linear")),
              ElementsAre("<root>", "layers.0.w1", "layers.0.w2", "head"));
}

TEST(Wrap, TitanMakesEmbeddingBlocksAndNormWithHeadUnits) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 2}), Wrapped("titan")),
              ElementsAre("emb", "layers.0", "layers.1", "norm+head"));
}

TEST(Wrap, TitanPutsATiedEmbeddingBesideNormAndHead) {
  EXPECT_THAT(UnitNames(TreeModel({.blocks = 2, .tie = true}), Wrapped("titan")),
              ElementsAre("emb+norm+head", "layers.0", "layers.1"));
}

TEST(Wrap, TitanKeepsNormAndHeadAfterForward) {
  PlanRequest request = Wrapped("titan");
  request.reshard_after_forward = true;
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 2}), request);
  for (const pb::Unit& unit : plan.units()) {
    EXPECT_EQ(unit.reshard_after_forward(), unit.name() != "norm+head") << unit.name();
  }
}

TEST(Wrap, OnlyTheRootIsKeptUnlessToldOtherwise) {
  const pb::Model model = TreeModel({.blocks = 2});
  const pb::Plan plan = PlanOf(model, Wrapped("block"));
  for (const pb::Unit& unit : plan.units()) {
    EXPECT_EQ(unit.reshard_after_forward(), unit.name() != "<root>") << unit.name();
  }
  PlanRequest swapped = Wrapped("block");
  swapped.reshard_after_forward = false;
  swapped.root_reshard_after_forward = true;
  const pb::Plan other = PlanOf(model, swapped);
  for (const pb::Unit& unit : other.units()) {
    EXPECT_EQ(unit.reshard_after_forward(), unit.name() == "<root>") << unit.name();
  }
}

TEST(WrapLayout, ChildrenComeBeforeTheirParentsOwnParameters) {
  pb::Model model = TreeModel({.blocks = 1});
  // Parameters of the block itself are named first and laid out last.
  AddParameter(FindModule(model, "layers.0"), "scale", {8});
  pb::Module& block = FindModule(model, "layers.0");
  pb::Statement& sum = *block.add_forward();
  sum.set_op(pb::Statement::PARAM_SUM);
  sum.set_param("scale");
  sum.add_out("sum");
  pb::Statement& scale = *block.add_forward();
  scale.set_op(pb::Statement::MUL);
  scale.add_in(block.output(0));
  scale.add_in("sum");
  scale.add_out(block.output(0));
  const pb::Plan plan = PlanOf(model, Wrapped("block"));
  EXPECT_EQ(plan.parameters(1).path(), "layers.0.scale");
  EXPECT_THAT(Layout(plan, "layers.0"),
              ElementsAre("layers.0.norm.weight", "layers.0.norm.bias", "layers.0.w1.weight",
                          "layers.0.w2.weight", "layers.0.scale"));
}

TEST(WrapLayout, RootHoldsWhatIsLeftInRegistrationOrder) {
  EXPECT_THAT(Layout(PlanOf(TreeModel({.blocks = 2}), Wrapped("block")), "<root>"),
              ElementsAre("emb.weight", "norm.weight", "norm.bias", "head.weight"));
}

TEST(WrapLayout, ModulesOfACallFollowInCallOrder) {
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 1}), Calls({{"head", "norm"}, {""}}));
  EXPECT_THAT(Layout(plan, "head+norm"), ElementsAre("head.weight", "norm.weight", "norm.bias"));
}

TEST(WrapLayout, OffsetsTileTheShardOfTheUnit) {
  const pb::Plan plan = PlanOf(TreeModel({.blocks = 1}), Wrapped("block"));
  // On 4 ranks: norm 2 + 2, w1 [32, 8] 64, w2 [8, 32] 64.
  const std::vector<int64_t> sizes = {2, 2, 64, 64};
  int64_t offset = 0;
  for (int i = 0; i < 4; ++i) {
    const pb::Parameter& p = plan.parameters(1 + i);
    EXPECT_EQ(p.shard_offset(), offset);
    EXPECT_EQ(p.padded_shard_numel(), sizes[i]);
    offset += sizes[i];
  }
}

TEST(WrapLayout, InnerUnitsTakeTheirParametersFromTheOuterOne) {
  const pb::Plan plan =
      PlanOf(TreeModel({.blocks = 1}), Calls({{"layers.0.w1"}, {"layers.0"}, {""}}));
  EXPECT_THAT(Layout(plan, "layers.0"),
              ElementsAre("layers.0.norm.weight", "layers.0.norm.bias", "layers.0.w2.weight"));
}

TEST(WrapRefusal, UnknownClassNamesTheNearest) {
  const std::string message = Refusal(TreeModel({}), Wrapped("class:Linaer"));
  EXPECT_THAT(message, HasSubstr("no module has class \"Linaer\""));
  EXPECT_THAT(message, HasSubstr("did you mean Linear?"));
}

TEST(WrapRefusal, EveryWantsAWholePositiveNumber) {
  for (const char* k : {"0", "x", "", "-1", "1.5", "2x", "99999999999999999999999"}) {
    EXPECT_THAT(
        Refusal(TreeModel({}), Wrapped(std::string("every:") + k)),
        HasSubstr(std::string("\"every:") + k + "\" wants a whole number of blocks, at least 1"));
  }
}

TEST(WrapRefusal, UnknownPolicyListsThePolicies) {
  EXPECT_THAT(Refusal(TreeModel({}), Wrapped("blocks")),
              HasSubstr("unknown policy \"blocks\"; expected block, every:K, whole, class:A,B, "
                        "titan, size:N, pattern:A,B, always or A|B"));
}

TEST(WrapRefusal, ModelsWithoutABlockClassNeedOne) {
  EXPECT_THAT(Refusal(TwoParameterModel(), Wrapped("block")),
              HasSubstr("names no block class; use class:NAME or pattern:PATH"));
}

TEST(WrapRefusal, TitanNeedsEmbeddingNormAndHead) {
  pb::Model model = TreeModel({.blocks = 1});
  FindModule(model, "norm").set_class_("Linear");
  FindModule(model, "norm").mutable_params(0)->add_shape(8);
  FindModule(model, "norm").mutable_params()->RemoveLast();
  EXPECT_THAT(Refusal(model, Wrapped("titan")),
              HasSubstr("titan needs an embedding, a final norm and a head"));
}

TEST(WrapRefusal, ListsOfModulesHaveNoForward) {
  EXPECT_THAT(
      Refusal(TreeModel({}), Calls({{"layers"}, {""}})),
      HasSubstr("\"layers\" is a ModuleList and has no forward; wrap its children instead"));
}

TEST(WrapRefusal, ModulesAreWrappedOnce) {
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{"layers.0"}, {"layers.0"}, {""}})),
              HasSubstr("module \"layers.0\" is wrapped twice"));
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{"layers.0", "layers.0"}, {""}})),
              HasSubstr("module \"layers.0\" is wrapped twice"));
}

TEST(WrapRefusal, TiesAcrossUnitsNameBoth) {
  const std::string message =
      Refusal(TreeModel({.tie = true}), Calls({{"emb"}, {"layers.0"}, {""}}));
  EXPECT_THAT(message, HasSubstr("emb.weight is shared by units emb and <root>"));
  EXPECT_THAT(message, HasSubstr("put the modules that share it in one unit"));
}

TEST(WrapRefusal, MissingModulesAreNamed) {
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{"layers.9"}, {""}})),
              HasSubstr("the model has no module \"layers.9\" (did you mean layers.0?)"));
}

TEST(WrapRefusal, TheLastCallIsOnTheModel) {
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{"layers.0"}})),
              HasSubstr("the last call must be on the model itself"));
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{""}, {"layers.0"}})),
              HasSubstr("the last call must be on the model itself"));
}

TEST(WrapRefusal, TheModelSharesNoUnit) {
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{"", "layers.0"}})),
              HasSubstr("the model itself cannot share a unit"));
}

TEST(WrapRefusal, CallsNameAModule) {
  EXPECT_THAT(Refusal(TreeModel({}), Calls({{}, {""}})), HasSubstr("a call names no module"));
}

TEST(WrapRefusal, UnitsRunInAForwardAndThoseOfSeveralModulesOnce) {
  pb::Model model = TreeModel({.blocks = 2});
  // The second block is called where the first one was: layers.1 runs twice, layers.0 never.
  for (pb::Statement& s : *model.mutable_root()->mutable_forward()) {
    if (s.module() == "layers.0") s.set_module("layers.1");
  }
  EXPECT_THAT(Refusal(model, Calls({{"layers.1", "norm"}, {""}})),
              HasSubstr("module \"layers.1\" runs 2 times in a forward"));
  EXPECT_THAT(Refusal(model, Calls({{"layers.0"}, {""}})),
              HasSubstr("module \"layers.0\" runs 0 times in a forward"));
}

}  // namespace
}  // namespace foreshard
