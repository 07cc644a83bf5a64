#include "planner/eager/dims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace foreshard {
namespace {

// Where the element with this number in row-major order lies.
int64_t AddressOf(const Dims& shape, const Dims& strides, int64_t number) {
  int64_t address = 0;
  for (int i = shape.size() - 1; i >= 0; --i) {
    address += number % shape[i] * strides[i];
    number /= shape[i];
  }
  return address;
}

std::vector<int64_t> Addresses(const Dims& shape, const Dims& strides) {
  std::vector<int64_t> addresses;
  for (int64_t i = 0; i < Numel(shape); ++i) addresses.push_back(AddressOf(shape, strides, i));
  return addresses;
}

std::string Text(const Dims& d) {
  std::string text = "[";
  for (int64_t v : d) text += std::to_string(v) + " ";
  return text + "]";
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  Dims Shape(int smallest) {
    Dims shape;
    const int rank = 1 + Below(4);
    for (int i = 0; i < rank; ++i) shape.push_back(smallest + Below(4));
    return shape;
  }

  // Strides of a tensor stored densely in another order of its dimensions.
  Dims PermutedStrides(const Dims& shape) {
    std::vector<int> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    Dims strides = shape;
    int64_t next = 1;
    for (int d : order) {
      strides[d] = next;
      next *= shape[d];
    }
    return strides;
  }

  // A random shape of as many elements, with dimensions of 1 strewn in.
  Dims Factors(int64_t numel) {
    Dims shape;
    while (shape.size() < Dims::kMax - 1 && (numel > 1 || shape.empty() || Below(3) == 0)) {
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= numel; ++d) {
        if (numel % d == 0) divisors.push_back(d);
      }
      const int64_t d = divisors[Below(static_cast<int>(divisors.size()))];
      shape.push_back(d);
      numel /= d;
    }
    shape.back() *= numel;
    return shape;
  }

 private:
  std::mt19937 random_;
};

// The strides that any view must have, read off the addresses; whether they explain all of them.
bool FindView(const Dims& shape, const Dims& strides, const Dims& to) {
  const std::vector<int64_t> wanted = Addresses(shape, strides);
  Dims needed = to;
  int64_t step = 1;  // elements that one step along the dimension skips
  for (int i = to.size() - 1; i >= 0; --i) {
    needed[i] = to[i] > 1 ? wanted[step] : 0;
    step *= to[i];
  }
  return Addresses(to, needed) == wanted;
}

TEST(ViewStrides, IsRightAboutEveryElementAndAboutWhatIsPossible) {
  Generator random(1);
  int views = 0;
  int copies = 0;
  for (int i = 0; i < 20000; ++i) {
    const Dims shape = random.Shape(1);
    Dims strides = random.PermutedStrides(shape);
    // Half of them are slices of a tensor that is larger along one dimension.
    if (random.Below(2) == 0) {
      const int sliced = random.Below(shape.size());
      for (int d = 0; d < shape.size(); ++d) {
        if (strides[d] > strides[sliced]) strides[d] *= 2;
      }
    }
    const Dims to = random.Factors(Numel(shape));
    SCOPED_TRACE(Text(shape) + " strides " + Text(strides) + " as " + Text(to));
    Dims result;
    const bool possible = FindView(shape, strides, to);
    ASSERT_EQ(ViewStrides(shape, strides, to, &result), possible);
    (possible ? views : copies)++;
    if (!possible) continue;
    ASSERT_EQ(Addresses(to, result), Addresses(shape, strides));
  }
  // Both answers were tried often.
  EXPECT_GT(views, 1000);
  EXPECT_GT(copies, 1000);
}

TEST(ViewStrides, SplitsAndMergesDimensions) {
  Dims result;
  // [4, 6] row by row: 6 splits into 2 x 3.
  ASSERT_TRUE(ViewStrides({4, 6}, {6, 1}, {4, 2, 3}, &result));
  EXPECT_EQ(result, (Dims{6, 3, 1}));
  // A transposed matrix has no rows that lie one behind the other.
  EXPECT_FALSE(ViewStrides({6, 4}, {1, 6}, {24}, &result));
}

TEST(ViewStrides, OneElementFitsAnyShape) {
  Dims result;
  EXPECT_TRUE(ViewStrides({}, {}, {1, 1}, &result));
  EXPECT_TRUE(ViewStrides({1, 1, 1}, {7, 5, 3}, {}, &result));
  EXPECT_EQ(result.size(), 0);
}

TEST(IsContiguous, MeansThatElementsLieInOrder) {
  Generator random(2);
  std::set<bool> seen;
  for (int i = 0; i < 5000; ++i) {
    const Dims shape = random.Shape(1);
    const Dims strides = random.PermutedStrides(shape);
    const std::vector<int64_t> addresses = Addresses(shape, strides);
    // Dense, so in order means 0, 1, 2, ...
    const bool in_order = std::is_sorted(addresses.begin(), addresses.end());
    EXPECT_EQ(IsContiguous(shape, strides), in_order) << Text(shape) << Text(strides);
    seen.insert(in_order);
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ContiguousStrides, CountElementsBehindEachDimension) {
  EXPECT_EQ(ContiguousStrides({2, 3, 5}), (Dims{15, 5, 1}));
  EXPECT_EQ(ContiguousStrides({}), Dims());
}

TEST(StridesLike, KeepsAPermutation) {
  Generator random(3);
  for (int i = 0; i < 5000; ++i) {
    const Dims shape = random.Shape(2);
    const Dims strides = random.PermutedStrides(shape);
    EXPECT_EQ(StridesLike(shape, strides), strides) << Text(shape);
  }
}

TEST(StridesLike, KeepsTheOrderOfElementsDespiteDimensionsOfOne) {
  Generator random(4);
  for (int i = 0; i < 5000; ++i) {
    const Dims shape = random.Shape(1);
    const Dims strides = random.PermutedStrides(shape);
    EXPECT_EQ(Addresses(shape, StridesLike(shape, strides)), Addresses(shape, strides))
        << Text(shape) << Text(strides);
  }
}

TEST(StridesLike, PacksWhatHasGaps) {
  // Every second column of a [3, 8] matrix: [3, 4] with strides 8, 2.
  EXPECT_EQ(StridesLike({3, 4}, {8, 2}), (Dims{4, 1}));
  // The same, transposed.
  EXPECT_EQ(StridesLike({4, 3}, {2, 8}), (Dims{1, 4}));
}

TEST(StridesLike, EqualStridesKeepTheirOrder) {
  // An expanded scalar has nothing to keep.
  EXPECT_EQ(StridesLike({2, 3}, {0, 0}), (Dims{3, 1}));
}

}  // namespace
}  // namespace foreshard
