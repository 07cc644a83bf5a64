#include "exec/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/testing/parse.h"
#include "tests/testing/temp_folder.h"

namespace foreshard::exec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

constexpr int kTokens = 0;
constexpr int kLabels = 1;
constexpr int kPositions = 2;
constexpr int kNoise = 3;

// `batch` sequences of 4 ids below 200 on each of `ranks` ranks.
pb::Plan PlanOf(int batch, int ranks) {
  auto plan = ParseOrDie<pb::Plan>(R"pb(
    inputs {
      name: "tokens"
      dtype: INT64
      shape: [ 1, 4 ]
      rule: TOKENS
      limit: 200
    }
    inputs {
      name: "labels"
      dtype: INT64
      shape: [ 4 ]
      rule: LABELS
    }
    inputs {
      name: "positions"
      dtype: INT64
      shape: [ 1, 4 ]
      rule: POSITIONS
    }
    inputs {
      name: "noise"
      dtype: BF16
      shape: [ 1, 4, 3 ]
      rule: NORMAL
    }
    decisions { seq: 4 }
  )pb");
  plan.mutable_mesh()->set_world_size(ranks);
  plan.mutable_decisions()->set_micro_batch(batch);
  for (const int i : {kTokens, kPositions, kNoise}) plan.mutable_inputs(i)->set_shape(0, batch);
  plan.mutable_inputs(kLabels)->set_shape(0, 4 * batch);
  return plan;
}

template <typename T = int64_t>
std::vector<T> Filled(const DataSource& data, const pb::Plan& plan, int input,
                      const DataPlace& place) {
  size_t numel = 1;
  for (const int64_t dim : plan.inputs(input).shape()) numel *= static_cast<size_t>(dim);
  std::vector<T> values(numel, T{-1});
  const Status status = data.Fill(input, place, std::span<T>(values));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

std::unique_ptr<DataSource> Synthetic(const pb::Plan& plan, uint64_t seed = 1) {
  auto data = SyntheticData(plan, seed);
  CHECK(data.ok()) << data.status().message();
  return std::move(data).value();
}

// Each label is the token that follows, where that is in the same row.
void ExpectShifted(const std::vector<int64_t>& tokens, const std::vector<int64_t>& labels) {
  ASSERT_EQ(tokens.size(), labels.size());
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (i % 4 != 3) {
      EXPECT_EQ(labels[i], tokens[i + 1]) << i;
    }
  }
}

TEST(SyntheticData, LabelsAreTheTokensShifted) {
  const pb::Plan plan = PlanOf(3, 2);
  const auto data = Synthetic(plan);
  const auto tokens = Filled(*data, plan, kTokens, {5, 1, 2});
  ExpectShifted(tokens, Filled(*data, plan, kLabels, {5, 1, 2}));
  EXPECT_THAT(tokens, Each(AllOf(Ge(0), Lt(200))));
}

TEST(SyntheticData, EveryPlaceHasItsOwn) {
  const pb::Plan plan = PlanOf(2, 2);
  std::set<std::vector<int64_t>> tokens;
  std::set<std::vector<float>> noise;
  const auto add = [&](const DataSource& data, const DataPlace& place) {
    tokens.insert(Filled(data, plan, kTokens, place));
    noise.insert(Filled<float>(data, plan, kNoise, place));
  };
  for (const DataPlace& place :
       {DataPlace{0, 0, 0}, DataPlace{1, 0, 0}, DataPlace{0, 1, 0}, DataPlace{0, 0, 1}}) {
    add(*Synthetic(plan), place);
    add(*Synthetic(plan), place);  // the same again
  }
  add(*Synthetic(plan, 2), {0, 0, 0});
  EXPECT_EQ(tokens.size(), 5u);
  EXPECT_EQ(noise.size(), 5u);
}

// Of one rank with 4 sequences, 2 with 2 each, and one with 2 micro-batches of 2.
TEST(SyntheticData, AStepHasTheSameSequencesHoweverItIsCut) {
  const pb::Plan whole = PlanOf(4, 1);
  const pb::Plan ranks = PlanOf(2, 2);
  const pb::Plan parts = PlanOf(2, 1);
  for (const int input : {kTokens, kLabels}) {
    const auto expected = Filled(*Synthetic(whole), whole, input, {3, 0, 0});
    const std::vector<int64_t> first(expected.begin(), expected.begin() + 8);
    const std::vector<int64_t> second(expected.begin() + 8, expected.end());
    EXPECT_EQ(Filled(*Synthetic(ranks), ranks, input, {3, 0, 0}), first);
    EXPECT_EQ(Filled(*Synthetic(ranks), ranks, input, {3, 1, 0}), second);
    EXPECT_EQ(Filled(*Synthetic(parts), parts, input, {3, 0, 0}), first);
    EXPECT_EQ(Filled(*Synthetic(parts), parts, input, {3, 0, 1}), second);
  }
  const auto noise = Filled<float>(*Synthetic(whole), whole, kNoise, {3, 0, 0});
  EXPECT_EQ(Filled<float>(*Synthetic(ranks), ranks, kNoise, {3, 1, 0}),
            std::vector<float>(noise.begin() + 24, noise.end()));
}

TEST(SyntheticData, PositionsCountAlongTheRow) {
  const pb::Plan plan = PlanOf(2, 1);
  EXPECT_THAT(Filled(*Synthetic(plan), plan, kPositions, {7, 0, 3}),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST(SyntheticData, IdsStayBelowTheLowestLimitAndReachIt) {
  pb::Plan plan = PlanOf(100, 1);
  plan.mutable_inputs(kLabels)->set_limit(3);
  const auto labels = Filled(*Synthetic(plan), plan, kLabels, {});
  EXPECT_EQ(std::set<int64_t>(labels.begin(), labels.end()), (std::set<int64_t>{0, 1, 2}));
}

TEST(SyntheticData, NoiseIsNormal) {
  const pb::Plan plan = PlanOf(20'000, 1);
  const auto values = Filled<float>(*Synthetic(plan), plan, kNoise, {});
  double sum = 0;
  double squares = 0;
  for (const float v : values) sum += v, squares += double{v} * v;
  const double bound = 5 / std::sqrt(values.size());  // 5 deviations of a mean
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0, bound);
  EXPECT_NEAR(squares / static_cast<double>(values.size()), 1, 2 * bound);
}

TEST(SyntheticData, RefusesInputsThatNoRuleFills) {
  const auto refusal = [](const auto& change) {
    pb::Plan plan = PlanOf(2, 1);
    change(plan);
    const Status status = SyntheticData(plan, 1).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidPlan);
    return status.message();
  };
  EXPECT_THAT(refusal([](pb::Plan& p) { p.mutable_inputs(kTokens)->clear_limit(); }),
              HasSubstr("input \"labels\": neither it nor another input has a limit"));
  EXPECT_THAT(refusal([](pb::Plan& p) { p.mutable_inputs(kTokens)->clear_rule(); }),
              HasSubstr("input \"tokens\": has no rule"));
  EXPECT_THAT(refusal([](pb::Plan& p) { p.mutable_inputs(kTokens)->set_dtype(pb::FP32); }),
              HasSubstr("found the dtype FP32, which is not one of TOKENS"));
  EXPECT_THAT(refusal([](pb::Plan& p) { p.mutable_inputs(kNoise)->set_dtype(pb::INT64); }),
              HasSubstr("found the dtype INT64, which is not one of NORMAL"));
  EXPECT_THAT(refusal([](pb::Plan& p) { p.mutable_inputs(kLabels)->set_shape(0, 7); }),
              HasSubstr("input \"labels\": found 7 ids, expected 2 sequences of 4"));
  EXPECT_THAT(refusal([](pb::Plan& p) { p.clear_decisions(); }), HasSubstr("sequences of 0"));
}

class FileData : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<DataSource>> Open(const std::string& name, std::string_view bytes,
                                             int64_t limit = 65536) {
    plan_.mutable_inputs(kTokens)->set_limit(limit);
    return DataFromFile(plan_, folder_.Write(name, bytes), 1);
  }
  std::string Refusal(const std::string& name, std::string_view bytes, int64_t limit = 65536) {
    const auto data = Open(name, bytes, limit);
    EXPECT_EQ(data.status().code(), StatusCode::kInvalidInput);
    return data.status().message();
  }
  static std::string Ids(const std::vector<uint16_t>& ids) {
    return {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()};
  }
  static std::string LlmcHeader(int32_t version, int32_t count) {
    std::vector<int32_t> head(256);
    head[0] = 20240520;
    head[1] = version;
    head[2] = count;
    return {reinterpret_cast<const char*>(head.data()), 1024};
  }

  TempFolder folder_;
  pb::Plan plan_ = PlanOf(2, 1);
};

// Ids that count up, so that a window is known by its first.
TEST_F(FileData, WindowsAreStretchesOfTheFileFromAllOverIt) {
  std::vector<uint16_t> ids(12);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint16_t>(1000 + i);
  const auto data = Open("train.bin", Ids(ids));
  ASSERT_TRUE(data.ok()) << data.status().message();
  std::set<int64_t> starts;
  for (int64_t step = 0; step < 100; ++step) {
    const auto tokens = Filled(**data, plan_, kTokens, {step, 0, 0});
    const auto labels = Filled(**data, plan_, kLabels, {step, 0, 0});
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(tokens[i], tokens[i / 4 * 4] + static_cast<int64_t>(i % 4));
      EXPECT_EQ(labels[i], tokens[i] + 1);
    }
    starts.insert({tokens[0], tokens[4]});
  }
  // 8 windows of 5 in 12 ids; 200 draws miss one of them once in 10^10 times.
  EXPECT_EQ(starts, (std::set<int64_t>{1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007}));
}

TEST_F(FileData, TextIsBytes) {
  const auto data = Open("a.txt", "a\xffz\n\t", 256);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_THAT(Filled(**data, plan_, kTokens, {}), ElementsAre(97, 255, 122, 10, 97, 255, 122, 10));
  EXPECT_THAT(Filled(**data, plan_, kLabels, {}), ElementsAre(255, 122, 10, 9, 255, 122, 10, 9));
}

TEST_F(FileData, SkipsTheHeaderOfLlmC) {
  const auto data = Open("a.bin", LlmcHeader(1, 5) + Ids({5, 4, 3, 2, 50256}));
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_THAT(Filled(**data, plan_, kLabels, {}), ElementsAre(4, 3, 2, 50256, 4, 3, 2, 50256));
}

TEST_F(FileData, OtherInputsAreAsWithoutAFile) {
  const auto data = Open("a.txt", "abcdefgh");
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(Filled<float>(**data, plan_, kNoise, {}),
            Filled<float>(*Synthetic(plan_), plan_, kNoise, {}));
}

TEST_F(FileData, RefusesIdsThatAreNotBelowTheLimit) {
  EXPECT_THAT(Refusal("a.txt", "\1\2\3d\4ef", 100),
              HasSubstr("/a.txt: found id 100 at position 3, expected ids below 100"));
  EXPECT_TRUE(Open("a.txt", "\1\2\3c\4bc", 100).ok());
  EXPECT_THAT(Refusal("a.bin", LlmcHeader(1, 6) + Ids({0, 1, 2, 3, 4, 300}), 300),
              HasSubstr("found id 300 at position 5"));
  // Past the first block of the search.
  std::string text(200'000, '\1');
  text[150'000] = 'x';
  EXPECT_THAT(Refusal("a.txt", text, 100), HasSubstr("found id 120 at position 150000"));
}

TEST_F(FileData, RefusesFilesOfOtherForms) {
  EXPECT_THAT(Refusal("a.txt", "abcd"), HasSubstr("found 4 ids, expected at least 5"));
  EXPECT_TRUE(Open("a.txt", "abcde").ok());
  EXPECT_THAT(Refusal("a.txt", ""), HasSubstr("found 0 ids"));
  EXPECT_THAT(Refusal("a.bin", Ids({1, 2, 3, 4})), HasSubstr("found 4 ids"));
  EXPECT_THAT(Refusal("a.bin", "abc"), HasSubstr("found 3 bytes, expected an even number"));
  EXPECT_THAT(Refusal("a.json", "[]"), HasSubstr("unknown suffix; expected .txt"));
  EXPECT_THAT(Refusal("a.bin", LlmcHeader(2, 5) + Ids({1, 2, 3, 4, 5})),
              HasSubstr("found a header of version 2 and 5 ids, expected version 1 and the 5"));
  EXPECT_THAT(Refusal("a.bin", LlmcHeader(1, 9) + Ids({1, 2, 3, 4, 5})), HasSubstr("and 9 ids"));
  EXPECT_EQ(DataFromFile(plan_, folder_.Path("none.txt"), 1).status().code(),
            StatusCode::kNotFound);
}

TEST_F(FileData, RefusesAFileForAPlanWithoutIds) {
  plan_ = ParseOrDie<pb::Plan>(R"pb(
    inputs {
      name: "x"
      dtype: FP32
      shape: [ 2 ]
      rule: NORMAL
    }
  )pb");
  EXPECT_TRUE(SyntheticData(plan_, 1).ok());
  EXPECT_EQ(DataFromFile(plan_, folder_.Write("a.txt", "abc"), 1).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace foreshard::exec
