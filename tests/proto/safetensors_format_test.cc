#include "proto/base/safetensors_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace foreshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// As if `data_bytes` followed the header in file "f".
StatusOr<SafetensorsHeader> Parse(const std::string& json, int64_t data_bytes) {
  const int64_t file_bytes = 8 + static_cast<int64_t>(json.size()) + data_bytes;
  return ParseSafetensorsHeader(json, file_bytes, "f");
}

std::string Entry(const std::string& name, const std::string& begin_end,
                  const std::string& shape = "[2]") {
  return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + begin_end +
         "}";
}

TEST(SafetensorsFormat, ReadsTensorsAndMetadata) {
  const std::string json = R"({"__metadata__":{"k":"v"},)" + Entry("b", "[0,8]") + "," +
                           Entry("a", "[8,32]", "[2,3]") + "}  ";
  const auto header = Parse(json, 32);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", "v")));
  ASSERT_EQ(header->tensors.size(), 2u);
  const StoredTensor& a = header->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, StoredType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.numel, 6);
  EXPECT_EQ(a.position, 8 + static_cast<int64_t>(json.size()) + 8);
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].position, 8 + static_cast<int64_t>(json.size()));
}

TEST(SafetensorsFormat, ReadsTensorsWithoutElementsAndWithoutDims) {
  const auto header =
      Parse("{" + Entry("none", "[4,4]", "[0,9]") + "," + Entry("one", "[0,4]", "[]") + "," +
                Entry("two", "[4,8]", "[1]") + "}",
            8);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors[0].numel, 0);
  EXPECT_EQ(header->tensors[1].numel, 1);
  EXPECT_TRUE(Parse("{}", 0).ok());
}

struct Fault {
  std::string json;
  int64_t data_bytes;
  std::string expected;  // in the message
};

void ExpectRefused(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.json);
    const Status status = Parse(fault.json, fault.data_bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
    EXPECT_THAT(status.message(), HasSubstr(fault.expected));
    EXPECT_TRUE(status.message().starts_with("f: "));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(SafetensorsFormat, RefusesHeadersThatAreNone) {
  ExpectRefused({
      {"", 0, "does not start with {"},
      {" {}", 0, "does not start with {"},
      {"[]", 0, "does not start with {"},
      {"{", 0, "parse error at line 1"},
      {"{} x", 0, "parse error"},
      {"{\"\xff\":1}", 0, "UTF-8"},
      {"{" + Entry("a", "[0,8]") + "," + Entry("a", "[8,16]") + "}", 16,
       R"(the key "a" stands twice)"},
      {R"({"a":)" + std::string(200, '[') + std::string(200, ']') + "}", 0, "nested deeper than"},
      {R"({"__metadata__":[]})", 0, "__metadata__: found [], expected an object"},
      {R"({"__metadata__":{"k":1}})", 0, R"("k": found 1, expected a string)"},
  });
}

TEST(SafetensorsFormat, RefusesEntriesThatAreIncompleteOrOfTheWrongKind) {
  const std::string rest = R"("shape":[2],"data_offsets":[0,8]}})";
  ExpectRefused({
      {R"({"a":7})", 0, R"(tensor "a": found 7, expected an object)"},
      {R"({"a\nb":7})", 0, R"(tensor "a\nb": found 7)"},
      {R"({"a":{)" + rest, 8, R"(tensor "a": has no dtype)"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "has no shape"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "has no data_offsets"},
      {R"({"a":{"dtype":"F32","extra":1,)" + rest, 8, R"(unknown field "extra")"},
      {R"({"a":{"dtype":"f32",)" + rest, 8, R"(found "f32", expected one of BOOL, U8)"},
      {R"({"a":{"dtype":32,)" + rest, 8, "found 32, expected one of"},
      {"{" + Entry("a", "[0,8]", "2") + "}", 8, "shape: found 2, expected a list"},
      {"{" + Entry("a", "[0,8]", "[-2]") + "}", 8, "shape: found [-2]"},
      {"{" + Entry("a", "[0,8]", "[2.0]") + "}", 8, "shape: found [2.0]"},
      {"{" + Entry("a", "[0,8]", "[9223372036854775808]") + "}", 8, "shape: found"},
      {"{" + Entry("a", "[0]") + "}", 8, "data_offsets: found [0], expected [begin, end]"},
      {"{" + Entry("a", "[8,0]") + "}", 8, "data_offsets: found [8,0]"},
      {"{" + Entry("a", "\"0\"") + "}", 8, "data_offsets: found \"0\""},
  });
}

TEST(SafetensorsFormat, RefusesDataThatDoesNotFillTheFileOnce) {
  const std::string two = "{" + Entry("a", "[0,8]") + "," + Entry("b", "[8,16]") + "}";
  EXPECT_TRUE(Parse(two, 16).ok());
  ExpectRefused({
      {"{" + Entry("a", "[0,4]") + "}", 4,
       R"(tensor "a": data_offsets: found 4 bytes, expected 8 for F32 [2])"},
      {"{" + Entry("a", "[0,8]", "[4294967296,4294967296]") + "}", 8, "expected over 2^63"},
      {two, 15, R"(tensor "b": the data ends at byte 16, but the file has 15)"},
      {two, 17, "ends at byte 16, but the file has 17"},
      {"{}", 1, "the header: the data ends at byte 0, but the file has 1"},
      {"{" + Entry("a", "[4,12]") + "}", 12,
       R"(tensor "a": starts at byte 4 of the data, expected 0)"},
      {"{" + Entry("a", "[0,8]") + "," + Entry("b", "[12,20]") + "}", 20,
       R"(tensor "b": starts at byte 12 of the data, expected 8, where tensor "a" ends (a hole))"},
      {"{" + Entry("a", "[0,8]") + "," + Entry("b", "[4,12]") + "}", 12, "(they overlap)"},
  });
}

TEST(SafetensorsFormat, ChecksTheLengthOfTheHeader) {
  const std::string prefix("\x02\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(*ParseSafetensorsPrefix(prefix, 10, "f"), 2);
  EXPECT_THAT(ParseSafetensorsPrefix(prefix, 9, "f").status().message(),
              HasSubstr("f: found a header of 2 bytes, expected 1 at most in a file of 9"));
  // 100,000,001 = 0x05F5E101
  const std::string long_one("\x01\xe1\xf5\x05\0\0\0\0", 8);
  EXPECT_THAT(ParseSafetensorsPrefix(long_one, 1'000'000'000, "f").status().message(),
              HasSubstr("found a header of 100000001 bytes, expected 100000000 at most"));
  const std::string ones(8, '\xff');
  EXPECT_FALSE(ParseSafetensorsPrefix(ones, 1'000'000'000, "f").ok());
}

TEST(SafetensorsFormat, FormatsWhatItParses) {
  std::vector<StoredTensor> tensors = {{"x\n\"", StoredType::kI64, {2}, 0, 0, 0},
                                       {"y", StoredType::kBf16, {3, 1}, 0, 0, 0}};
  const auto head = FormatSafetensorsHeader(tensors, {{"k", "v"}});
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(head->size() % 8, 0u);
  EXPECT_EQ(tensors[0].position, static_cast<int64_t>(head->size()));
  EXPECT_EQ(tensors[1].position, static_cast<int64_t>(head->size()) + 16);
  const auto header = Parse(head->substr(8), 16 + 6);
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors[0].name, "x\n\"");
  EXPECT_EQ(header->tensors[1].position, tensors[1].position);
  EXPECT_THAT(header->metadata, ElementsAre(Pair("k", "v")));
}

TEST(SafetensorsFormat, FormatsNoNamesOrShapesThatItWouldRefuse) {
  const auto refusal = [](std::vector<StoredTensor> tensors, const StoredMetadata& metadata = {}) {
    return FormatSafetensorsHeader(tensors, metadata).status();
  };
  const StoredTensor a = {"a", StoredType::kF32, {1}, 0, 0, 0};
  EXPECT_THAT(refusal({a, a}).message(), HasSubstr(R"(tensor "a": the name is taken)"));
  EXPECT_EQ(refusal({a, a}).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(refusal({{"__metadata__", StoredType::kF32, {1}, 0, 0, 0}}).ok());
  EXPECT_FALSE(refusal({{"a", StoredType::kF32, {-1}, 0, 0, 0}}).ok());
  EXPECT_FALSE(refusal({{"a", StoredType::kF32, {int64_t{1} << 61}, 0, 0, 0}}).ok());
  EXPECT_THAT(refusal({{"\xff", StoredType::kF32, {1}, 0, 0, 0}}).message(), HasSubstr("UTF-8"));
  EXPECT_FALSE(refusal({a}, {{"k", "\xff"}}).ok());
}

TEST(SafetensorsFormat, IndexNamesPlainFiles) {
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":8},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})",
      "i");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_THAT(*index, ElementsAre(Pair("a", "x.safetensors"), Pair("b", "y.safetensors")));

  for (const char* file : {R"("../x")", R"("/x")", R"("d/x")", R"("..")", R"(".")", R"("")",
                           R"("x\u0000y")", R"("d\\x")", "7", "null"}) {
    SCOPED_TRACE(file);
    const std::string json = std::string(R"({"weight_map":{"a":)") + file + "}}";
    const Status status = ParseSafetensorsIndex(json, "i").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
    EXPECT_THAT(status.message(), HasSubstr(R"(i: tensor "a": found the file )"));
  }
  for (const char* json :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":"x","a":"y"}})"}) {
    EXPECT_EQ(ParseSafetensorsIndex(json, "i").status().code(), StatusCode::kInvalidInput) << json;
  }
}

}  // namespace
}  // namespace foreshard
