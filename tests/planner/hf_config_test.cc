#include "planner/families/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace foreshard {
namespace {

HfConfig Config(const std::string& text) {
  StatusOr<HfConfig> config = HfConfig::Parse(text, "c.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

HfConfig WithWidth(const std::string& value) {
  return Config(R"({"model_type": "llama", "hidden_size": )" + value + "}");
}

std::string ParseError(const std::string& text) {
  const StatusOr<HfConfig> config = HfConfig::Parse(text, "c.json");
  EXPECT_FALSE(config.ok());
  if (config.ok()) return "";
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidInput);
  return config.status().message();
}

std::string SizeError(const std::string& value) {
  const StatusOr<int64_t> size = WithWidth(value).Size(hf::kHiddenSize);
  EXPECT_FALSE(size.ok());
  return size.ok() ? "" : size.status().message();
}

TEST(HfConfig, ReadsPositiveIntegers) {
  EXPECT_EQ(*WithWidth("4096").Size(hf::kHiddenSize), 4096);
  EXPECT_EQ(*WithWidth("1").Size(hf::kHiddenSize), 1);
  EXPECT_EQ(*WithWidth("2147483647").Size(hf::kHiddenSize), 2147483647);
}

TEST(HfConfig, AcceptsIntegralFloatsAsSizes) {
  EXPECT_EQ(*WithWidth("32000.0").Size(hf::kHiddenSize), 32000);
  EXPECT_EQ(*WithWidth("4.096e3").Size(hf::kHiddenSize), 4096);
}

TEST(HfConfig, RefusesWhatIsNoSize) {
  const std::string expected = ", expected an integer from 1 to 2147483647";
  for (const std::string value : {"0", "-4096", "4096.5", "2147483648", "18446744073709551615",
                                  "1e+300", "\"4096\"", "true", "[4096]", "{}"}) {
    EXPECT_EQ(SizeError(value), "c.json: /hidden_size: found " + value + expected);
  }
}

TEST(HfConfig, ShortensLongValuesInErrors) {
  const std::string message = SizeError("\"" + std::string(5000, 'x') + "\"");
  EXPECT_LT(message.size(), 200u);
  EXPECT_THAT(message, testing::HasSubstr("xxx..."));
}

TEST(HfConfig, DeepNestingIsRefusedNotPrinted) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(SizeError(deep), testing::HasSubstr("found nested values, 1 at the top"));
}

TEST(HfConfig, NullIsAbsent) {
  const HfConfig config = Config(R"({"model_type": "llama", "head_dim": null, "bias": null})");
  EXPECT_FALSE(config.OptionalSize({"head_dim"})->has_value());
  EXPECT_FALSE(config.OptionalBool({"bias"})->has_value());
  EXPECT_FALSE(config.OptionalNumber({"eps"})->has_value());
  EXPECT_FALSE(config.OptionalString({"act"})->has_value());
  EXPECT_EQ(config.Size({"head_dim"}).status().message(),
            "c.json: /head_dim: found nothing, expected an integer from 1 to 2147483647");
}

TEST(HfConfig, FirstPresentAliasWinsAndErrorsNameIt) {
  const HfConfig config =
      Config(R"({"model_type": "x", "hidden_size": null, "n_embd": 12, "d_model": 7})");
  EXPECT_EQ(*config.Size(hf::kHiddenSize), 12);
  const HfConfig bad = Config(R"({"model_type": "x", "d_model": -1})");
  EXPECT_THAT(bad.Size(hf::kHiddenSize).status().message(),
              testing::HasSubstr("/d_model: found -1"));
}

TEST(HfConfig, ReadsNumbersBooleansAndStrings) {
  const HfConfig config =
      Config(R"({"model_type": "x", "eps": 1e-05, "count": 3, "tie": true, "act": "silu"})");
  EXPECT_EQ(**config.OptionalNumber({"eps"}), 1e-05);
  EXPECT_EQ(**config.OptionalNumber({"count"}), 3.0);
  EXPECT_EQ(**config.OptionalBool({"tie"}), true);
  EXPECT_EQ(**config.OptionalString({"act"}), "silu");
}

TEST(HfConfig, RefusesValuesOfTheWrongType) {
  const HfConfig config = Config(R"({"model_type": "x", "eps": "small", "tie": 1, "act": 2})");
  EXPECT_EQ(config.OptionalNumber({"eps"}).status().message(),
            "c.json: /eps: found \"small\", expected a number");
  EXPECT_EQ(config.OptionalBool({"tie"}).status().message(),
            "c.json: /tie: found 1, expected true or false");
  EXPECT_EQ(config.OptionalString({"act"}).status().message(),
            "c.json: /act: found 2, expected a string");
}

TEST(HfConfig, ReadsAnObjectLikeTheConfigItself) {
  const HfConfig config = Config(
      R"({"model_type": "llama", "hidden_size": 8, "rope": {"n": 3, "s": "x"}, "no": null,
          "deep": {"a": {}}, "text": "x"})");
  const auto rope = config.OptionalObject({"rope"});
  ASSERT_TRUE(rope.ok() && *rope);
  EXPECT_EQ(*(*rope)->Size({"n"}), 3);
  EXPECT_EQ((*rope)->Size({"s"}).status().message(),
            "c.json: /rope/s: found \"x\", expected an integer from 1 to 2147483647");
  EXPECT_FALSE(*config.OptionalObject({"no"}));
  for (const char* name : {"deep", "text"}) {
    EXPECT_THAT(config.OptionalObject({name}).status().message(),
                testing::HasSubstr("expected an object of plain values"));
  }
}

TEST(HfConfig, PositiveNumbersAreAboveZero) {
  const HfConfig config =
      Config(R"({"model_type": "llama", "hidden_size": 8, "zero": 0, "half": 0.5})");
  EXPECT_EQ(*config.Positive({"half"}, std::nullopt), 0.5);
  EXPECT_EQ(*config.Positive({"absent"}, 3), 3);
  for (const char* name : {"zero", "absent"}) {
    EXPECT_THAT(config.Positive({name}, std::nullopt).status().message(),
                testing::HasSubstr("expected a number above 0"));
  }
}

TEST(HfConfig, ReadsTheNestedTextConfig) {
  const HfConfig config =
      Config(R"({"model_type": "vlm", "text_config": {"model_type": "llama", "hidden_size": 8}})");
  EXPECT_EQ(config.section(), "/text_config");
  EXPECT_EQ(config.model_type(), "llama");
  EXPECT_EQ(*config.Size(hf::kHiddenSize), 8);
  EXPECT_THAT(config.Size(hf::kLayers).status().message(),
              testing::HasSubstr("/text_config/num_hidden_layers"));
}

TEST(HfConfig, NestedConfigMayTakeTheTypeOfTheTopLevel) {
  const HfConfig config = Config(R"({"model_type": "llama", "text_config": {"hidden_size": 8}})");
  EXPECT_EQ(config.model_type(), "llama");
}

TEST(HfConfig, TopLevelSizesWinOverTheNestedConfig) {
  const HfConfig config =
      Config(R"({"model_type": "llama", "hidden_size": 4, "text_config": {"hidden_size": 8}})");
  EXPECT_EQ(config.section(), "");
  EXPECT_EQ(*config.Size(hf::kHiddenSize), 4);
}

TEST(HfConfig, RefusesTextThatIsNotJson) {
  EXPECT_THAT(ParseError("{\"model_type\": \"llama\",\n \"hidden_size\" 7}"),
              testing::StartsWith("c.json: not JSON: line 2, column 16:"));
  EXPECT_THAT(ParseError("{\"model_type\": \"lla"),
              testing::StartsWith("c.json: not JSON: line 1"));
  EXPECT_THAT(ParseError(""), testing::StartsWith("c.json: not JSON:"));
  EXPECT_THAT(ParseError("{\"a\": 1e999}"), testing::StartsWith("c.json: not JSON:"));
}

TEST(HfConfig, RefusesDocumentsThatAreNoConfigs) {
  EXPECT_EQ(ParseError("[1]"), "c.json: /: found [1], expected an object with the model's fields");
  EXPECT_THAT(ParseError("{}"), testing::StartsWith("c.json: /model_type: found nothing"));
  EXPECT_THAT(ParseError(R"({"model_type": 7})"),
              testing::StartsWith("c.json: /model_type: found 7"));
  EXPECT_EQ(ParseError(R"({"model_type": "x", "text_config": 3})"),
            "c.json: /text_config: found 3, expected an object");
}

TEST(HfConfig, ErrorsAreOneLine) {
  EXPECT_EQ(SizeError("\"a\\nb\"").find('\n'), std::string::npos);
  EXPECT_EQ(ParseError("{\n\"a\n").find('\n'), std::string::npos);
}

TEST(HfConfig, ArchitectureIsTheFirstOfTheList) {
  EXPECT_EQ(**Config(R"({"model_type": "x", "architectures": ["A", "B"]})").Architecture(), "A");
  EXPECT_FALSE(Config(R"({"model_type": "x", "architectures": []})").Architecture()->has_value());
  EXPECT_FALSE(Config(R"({"model_type": "x"})").Architecture()->has_value());
  EXPECT_EQ(
      Config(R"({"model_type": "x", "architectures": "A"})").Architecture().status().message(),
      "c.json: /architectures: found \"A\", expected a list of class names");
  EXPECT_EQ(
      Config(R"({"model_type": "x", "architectures": [1]})").Architecture().status().message(),
      "c.json: /architectures/0: found 1, expected a class name");
}

}  // namespace
}  // namespace foreshard
