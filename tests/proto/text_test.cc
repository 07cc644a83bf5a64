#include "proto/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace foreshard {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("abc", "abc"), 0u);
  EXPECT_EQ(EditDistance("abc", "axc"), 1u);
  EXPECT_EQ(EditDistance("abc", "bc"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);  // k>s, e>i, +g
  EXPECT_EQ(EditDistance("ab", "ba"), 2u);
}

TEST(NearestMatch, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"llama-2-7b", "llama-2-70b", "gpt2"};
  EXPECT_EQ(NearestMatch("llama2-7b", names), "llama-2-7b");
  EXPECT_EQ(NearestMatch("llama-2-70B", names), "llama-2-70b");
  EXPECT_EQ(NearestMatch("gpt-2", names), "gpt2");
}

TEST(NearestMatch, IsSilentWhenNothingIsNear) {
  const std::vector<std::string> names = {"llama-2-7b", "gpt2"};
  EXPECT_EQ(NearestMatch("mistral", names), std::nullopt);
  EXPECT_EQ(NearestMatch("", names), std::nullopt);
  EXPECT_EQ(NearestMatch("gpt2", {}), std::nullopt);
  EXPECT_EQ(NearestMatch(std::string(1 << 20, 'x'), names), std::nullopt);
}

TEST(NearestMatch, TakesTheFirstOfEquals) {
  const std::vector<std::string> names = {"aax", "aay"};
  EXPECT_EQ(NearestMatch("aaz", names), "aax");
}

// Published values of the FNV-1a test suite.
static_assert(Fnv1a64("") == 0xcbf29ce484222325);
static_assert(Fnv1a64("a") == 0xaf63dc4c8601ec8c);
static_assert(Fnv1a64("foobar") == 0x85944171f73967e8);

}  // namespace
}  // namespace foreshard
