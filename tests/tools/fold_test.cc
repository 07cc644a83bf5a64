#include "tools/render/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace foreshard {
namespace {

std::vector<std::string> Labels(const std::vector<std::string>& names,
                                const std::function<bool(size_t, size_t)>& alike) {
  std::vector<std::string> labels;
  for (const Fold& fold : FoldNames(names, alike)) labels.push_back(fold.label);
  return labels;
}

const auto kAlways = [](size_t, size_t) { return true; };

using testing::ElementsAre;

TEST(Fold, NeighboursThatCountUpAreOneLine) {
  EXPECT_THAT(Labels({"<root>", "h.0", "h.1", "h.2"}, kAlways), ElementsAre("<root>", "h.0..2 x3"));
  EXPECT_THAT(Labels({"h.0.mlp", "h.1.mlp"}, kAlways), ElementsAre("h.0..1.mlp x2"));
  EXPECT_THAT(Labels({"0", "1"}, kAlways), ElementsAre("0..1 x2"));
}

TEST(Fold, GapsOtherNamesAndUnlikeOnesEndARun) {
  EXPECT_THAT(Labels({"h.0", "h.2"}, kAlways), ElementsAre("h.0", "h.2"));
  EXPECT_THAT(Labels({"h.1", "h.0"}, kAlways), ElementsAre("h.1", "h.0"));
  EXPECT_THAT(Labels({"h.0", "g.1"}, kAlways), ElementsAre("h.0", "g.1"));
  EXPECT_THAT(Labels({"h.0.a", "h.1.b"}, kAlways), ElementsAre("h.0.a", "h.1.b"));
  EXPECT_THAT(Labels({"norm", "norm"}, kAlways), ElementsAre("norm", "norm"));
  // Each is compared with the first of its run, so that small steps do not add up.
  const std::vector<int> values = {10, 11, 12, 13};
  const auto close = [&](size_t a, size_t b) { return values[b] - values[a] <= 1; };
  EXPECT_THAT(Labels({"h.0", "h.1", "h.2", "h.3"}, close), ElementsAre("h.0..1 x2", "h.2..3 x2"));
}

TEST(Fold, JoinedNamesAreARange) {
  EXPECT_THAT(Labels({"h.0+h.1", "h.2+h.3", "h.4"}, kAlways), ElementsAre("h.0..3 x2", "h.4"));
  EXPECT_THAT(Labels({"h.0+h.1+h.2"}, kAlways), ElementsAre("h.0..2"));
  EXPECT_THAT(Labels({"norm+head"}, kAlways), ElementsAre("norm+head"));
  EXPECT_THAT(Labels({"h.0+h.2"}, kAlways), ElementsAre("h.0+h.2"));
}

TEST(Fold, NamesWithTwoNumbersStayApart) {
  EXPECT_FALSE(ParseNumbered("h.0.experts.1").has_value());
  EXPECT_FALSE(ParseNumbered("h.-1").has_value());
  EXPECT_FALSE(ParseNumbered("h.99999999999999999999").has_value());
  EXPECT_FALSE(ParseNumbered("").has_value());
}

}  // namespace
}  // namespace foreshard
