#include "exec/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "exec/random.h"
#include "proto/base/safetensors.h"
#include "proto/base/text.h"
#include "tests/testing/parse.h"
#include "tests/testing/temp_folder.h"

namespace foreshard::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A norm's scale and an embedding that is also the head.
pb::Plan TwoParameters() {
  return ParseOrDie<pb::Plan>(R"pb(
    parameters {
      path: "wte"
      shape: [ 3, 2 ]
      shared_with: "head"
      initial { normal: 0.5 }
    }
    parameters {
      path: "norm"
      shape: [ 2 ]
      initial { constant: 1 }
    }
  )pb");
}

std::vector<float> Filled(const WeightSource& source, int parameter, int64_t first, size_t count) {
  std::vector<float> values(count, -1);
  const Status status = source.Fill(parameter, first, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

TEST(Initial, DependsOnSeedPathAndElementOnly) {
  pb::Initial normal;
  normal.set_normal(0.25);
  std::vector<float> whole(100);
  FillInitial(normal, 7, "a.b", 0, whole);
  const uint64_t key = RandomKey({7, Fnv1a64("a.b")});
  EXPECT_EQ(whole[42], RandomNormal(key, 42) * 0.25F);
  std::vector<float> part(10);
  FillInitial(normal, 7, "a.b", 40, part);
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 40, whole.begin() + 50));
  FillInitial(normal, 8, "a.b", 40, part);
  EXPECT_NE(part[0], whole[40]);
  FillInitial(normal, 7, "a.c", 40, part);
  EXPECT_NE(part[0], whole[40]);
}

TEST(Initial, HasTheMomentsOfItsDistribution) {
  constexpr size_t kCount = 1 << 18;
  std::vector<float> values(kCount);
  const auto mean_and_deviation = [&] {
    double sum = 0;
    double squares = 0;
    for (const float v : values) sum += v, squares += double{v} * v;
    const double mean = sum / kCount;
    return std::pair(mean, std::sqrt(squares / kCount - mean * mean));
  };
  // The mean of 2^18 draws is off by more than 5 deviations / 2^9 once in a million; their
  // deviation scatters less.
  pb::Initial initial;
  initial.set_normal(0.02);
  FillInitial(initial, 1, "w", 0, values);
  EXPECT_NEAR(mean_and_deviation().first, 0, 5 * 0.02 / 512);
  EXPECT_NEAR(mean_and_deviation().second, 0.02, 5 * 0.02 / 512);
  initial.set_uniform(0.3);  // deviation 0.3 / sqrt(3)
  FillInitial(initial, 1, "w", 0, values);
  EXPECT_NEAR(mean_and_deviation().first, 0, 5 * 0.3 / std::sqrt(3) / 512);
  EXPECT_NEAR(mean_and_deviation().second, 0.3 / std::sqrt(3), 5 * 0.3 / 512);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, -0.3F);
  EXPECT_LT(*high, 0.3F);
  initial.set_constant(1);
  FillInitial(initial, 1, "w", 0, values);
  EXPECT_THAT(values, ::testing::Each(1.0F));
}

TEST(WeightsFromSeed, FillsEveryParameterOfThePlan) {
  const pb::Plan plan = TwoParameters();
  const auto source = WeightsFromSeed(plan, 3);
  ASSERT_TRUE(source.ok()) << source.status().message();
  std::vector<float> expected(2);
  FillInitial(plan.parameters(0).initial(), 3, "wte", 4, expected);
  EXPECT_EQ(Filled(**source, 0, 4, 2), expected);
  EXPECT_THAT(Filled(**source, 1, 0, 2), ElementsAre(1, 1));
}

TEST(WeightsFromSeed, RefusesAParameterWithoutInitialValue) {
  pb::Plan plan = TwoParameters();
  plan.mutable_parameters(1)->clear_initial();
  const Status status = WeightsFromSeed(plan, 3).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidPlan);
  EXPECT_THAT(status.message(), HasSubstr("\"norm\""));
}

class WeightsFromFileTest : public ::testing::Test {
 protected:
  template <typename T>
  void Add(const std::string& name, StoredType type, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    kept_.emplace_back(bytes.begin(), bytes.end());
    tensors_.push_back(FromMemory(name, type, std::move(shape), kept_.back()));
  }
  void AddNorm() { Add<float>("norm", StoredType::kF32, {2}, {7, 8}); }

  StatusOr<FileWeights> Open(const pb::Plan& plan = TwoParameters()) {
    const std::string path = folder_.Path("w.safetensors");
    EXPECT_TRUE(WriteSafetensors(path, tensors_).ok());
    return WeightsFromFile(plan, path);
  }
  std::string Refusal() {
    const auto weights = Open();
    EXPECT_EQ(weights.status().code(), StatusCode::kInvalidInput);
    return weights.status().message();
  }

  TempFolder folder_;
  std::vector<TensorToWrite> tensors_;
  std::vector<std::vector<std::byte>> kept_;
};

TEST_F(WeightsFromFileTest, FindsTensorsByPathOrTiedPathAndReportsOthers) {
  AddNorm();
  Add<float>("head", StoredType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  Add<int64_t>("steps", StoredType::kI64, {1}, {9});
  Add<float>("z", StoredType::kF32, {1}, {9});
  const auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_THAT(Filled(*weights->source, 0, 1, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Filled(*weights->source, 1, 0, 2), ElementsAre(7, 8));
  EXPECT_THAT(weights->unused, ElementsAre("steps", "z"));
}

TEST_F(WeightsFromFileTest, ConvertsHalfPrecision) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // bf16 is the upper half of fp32: 1, -2, 3.140625, infinity, the smallest subnormal, -0.
  Add<uint16_t>("wte", StoredType::kBf16, {3, 2}, {0x3F80, 0xC000, 0x4049, 0x7F80, 0x0001, 0x8000});
  AddNorm();
  auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  std::vector<float> values = Filled(*weights->source, 0, 0, 6);
  EXPECT_THAT(values, ElementsAre(1, -2, 3.140625, kInfinity, 0x1p-133F, 0));
  EXPECT_TRUE(std::signbit(values[5]));

  // fp16: 1, the largest, the smallest normal, the smallest subnormal, -infinity, -0.
  tensors_.clear();
  Add<uint16_t>("wte", StoredType::kF16, {3, 2}, {0x3C00, 0x7BFF, 0x0400, 0x0001, 0xFC00, 0x8000});
  AddNorm();
  weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  values = Filled(*weights->source, 0, 0, 6);
  EXPECT_THAT(values, ElementsAre(1, 65504, 0x1p-14F, 0x1p-24F, -kInfinity, 0));
  EXPECT_TRUE(std::signbit(values[5]));
}

TEST_F(WeightsFromFileTest, ConvertsMoreThanABlock) {
  constexpr size_t kCount = 150'000;
  std::vector<uint16_t> bits(kCount);
  for (size_t i = 0; i < kCount; ++i) bits[i] = static_cast<uint16_t>(0x3F80 + i % 100);
  Add<uint16_t>("w", StoredType::kBf16, {static_cast<int64_t>(kCount)}, bits);
  const auto weights = Open(ParseOrDie<pb::Plan>(R"pb(parameters {
                                                        path: "w"
                                                        shape: [ 150000 ]
                                                      })pb"));
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const std::vector<float> values = Filled(*weights->source, 0, 1, kCount - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    // The last of 7 bits of the fraction is worth 2^-7.
    ASSERT_EQ(values[i], 1 + 0x1p-7F * static_cast<float>((i + 1) % 100)) << i;
  }
}

TEST_F(WeightsFromFileTest, NamesTheFirstParameterThatDoesNotMatchAndCounts) {
  Add<float>("wtf", StoredType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Refusal(), HasSubstr(R"(w.safetensors: parameter "wte": no tensor has this name; )"
                                   R"(the nearest is "wtf" (2 of 2 parameters do not match))"));
  AddNorm();
  EXPECT_THAT(Refusal(), HasSubstr("(1 of 2 parameters do not match)"));
}

TEST_F(WeightsFromFileTest, RefusesOtherShapesAndTypes) {
  AddNorm();
  Add<float>("wte", StoredType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Refusal(), HasSubstr(R"(tensor "wte": found the shape [2, 3], expected [3, 2])"));
  tensors_.pop_back();
  Add<double>("wte", StoredType::kF64, {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Refusal(), HasSubstr(R"(tensor "wte": found F64, expected F32, BF16 or F16)"));
}

TEST_F(WeightsFromFileTest, TiedTensorsMustBeTheSame) {
  AddNorm();
  Add<float>("wte", StoredType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  Add<uint16_t>("head", StoredType::kBf16, {3, 2},
                {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0});
  const auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_THAT(weights->unused, IsEmpty());
  tensors_.pop_back();
  Add<float>("head", StoredType::kF32, {3, 2}, {1, 2, 3, 4, 5, 7});
  EXPECT_THAT(Refusal(), HasSubstr(R"(tensor "head": its values differ from those of "wte")"));
}

TEST_F(WeightsFromFileTest, PassesOnWhatIsWrongWithTheFile) {
  const pb::Plan plan = TwoParameters();
  EXPECT_EQ(WeightsFromFile(plan, folder_.Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(WeightsFromFile(plan, folder_.Write("x", "no")).status().code(),
            StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace foreshard::exec
