#include "proto/base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/temp_folder.h"

namespace foreshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string ReadAll(const Safetensors& file, const StoredTensor& tensor) {
  std::string bytes(static_cast<size_t>(tensor.numel * SizeOf(tensor.type)), '?');
  const Status status = file.Read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

// What tests/proto/data/make_safetensors.py wrote with the reference implementation.
struct Reference {
  std::string name;
  StoredType type;
  std::vector<int64_t> shape;
};
const std::vector<Reference>& References() {
  static const auto& references =
      *new std::vector<Reference>{{"a.weight", StoredType::kF32, {3, 4}},
                                  {"a.bias", StoredType::kF32, {3}},
                                  {"b.weight", StoredType::kBf16, {2, 5}},
                                  {"b.bias", StoredType::kF16, {5}},
                                  {"mask", StoredType::kBool, {3}},
                                  {"steps", StoredType::kI64, {2}},
                                  {"none", StoredType::kF32, {0, 7}},
                                  {"scalar", StoredType::kF64, {}},
                                  {"u8", StoredType::kU8, {5}},
                                  {"i8", StoredType::kI8, {3}},
                                  {"e5m2", StoredType::kF8E5M2, {3}},
                                  {"e4m3", StoredType::kF8E4M3, {1}},
                                  {"i16", StoredType::kI16, {3}},
                                  {"u16", StoredType::kU16, {1}},
                                  {"i32", StoredType::kI32, {1}},
                                  {"u32", StoredType::kU32, {2}},
                                  {"u64", StoredType::kU64, {1}},
                                  {"z \"quoted\" \u00e9", StoredType::kF32, {1}}};
  return references;
}
std::string ReferenceBytes(size_t k) {
  const Reference& reference = References()[k];
  int64_t count = SizeOf(reference.type);
  for (const int64_t dim : reference.shape) count *= dim;
  std::string bytes;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t value = (31 * i + k) % 251;
    bytes += static_cast<char>(reference.type == StoredType::kBool ? value % 2 : value);
  }
  return bytes;
}
std::string ReferencePath() {
  return FORESHARD_SOURCE_DIR "/tests/proto/data/reference.safetensors";
}

TEST(Safetensors, ReadsWhatTheReferenceImplementationWrote) {
  const auto file = Safetensors::Open(ReferencePath());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), References().size());
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("format", "pt")));
  for (size_t k = 0; k < References().size(); ++k) {
    SCOPED_TRACE(References()[k].name);
    const StoredTensor* tensor = file->Find(References()[k].name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, References()[k].type);
    EXPECT_EQ(tensor->shape, References()[k].shape);
    EXPECT_EQ(ReadAll(*file, *tensor), ReferenceBytes(k));
  }
  EXPECT_EQ(file->Find("a"), nullptr);
  EXPECT_EQ(file->Find("zz"), nullptr);
}

TEST(Safetensors, WritesTheSameBytesAsTheReferenceImplementation) {
  const TempFolder folder;
  std::vector<std::string> bytes;
  for (size_t k = 0; k < References().size(); ++k) bytes.push_back(ReferenceBytes(k));
  std::vector<TensorToWrite> tensors;
  for (size_t k = 0; k < References().size(); ++k) {
    const Reference& reference = References()[k];
    tensors.push_back(
        FromMemory(reference.name, reference.type, reference.shape, AsBytes(bytes[k])));
  }
  const Status status = WriteSafetensors(folder.Path("x.safetensors"), tensors, {{"format", "pt"}});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(*ReadFile(folder.Path("x.safetensors")), *ReadFile(ReferencePath()));
  EXPECT_EQ(folder.Count(), 1);
}

TEST(Safetensors, ReadsAnyStretchOfATensor) {
  const auto file = Safetensors::Open(ReferencePath());
  ASSERT_TRUE(file.ok());
  std::string bytes(8, '?');
  // Elements 5 and 6 of a.weight, the 0th: bytes 20 to 27.
  ASSERT_TRUE(
      file->Read(*file->Find("a.weight"), 5, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, ReferenceBytes(0).substr(20, 8));
  EXPECT_TRUE(file->Read(*file->Find("none"), 0, {}).ok());
}

TEST(Safetensors, AsksForLargeTensorsInOrderInPieces) {
  const TempFolder folder;
  constexpr int64_t kNumel = 3'000'001;  // 2.9 pieces of 2^20 bytes
  int64_t next = 0;
  const auto fill = [&](int64_t offset, std::span<std::byte> out) {
    EXPECT_EQ(offset, next);
    next += static_cast<int64_t>(out.size());
    for (std::byte& b : out) b = static_cast<std::byte>(offset++ % 253);
    return OkStatus();
  };
  ASSERT_TRUE(WriteSafetensors(folder.Path("x"), {{"t", StoredType::kU8, {kNumel}, fill}}).ok());
  EXPECT_EQ(next, kNumel);
  const auto file = Safetensors::Open(folder.Path("x"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string bytes = ReadAll(*file, file->tensors()[0]);
  EXPECT_EQ(static_cast<unsigned char>(bytes.back()), (kNumel - 1) % 253);
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNoTemporary) {
  const TempFolder folder;
  folder.Write("x", "old");
  const auto fail = [](int64_t, std::span<std::byte>) { return Unavailable("gone"); };
  const Status status = WriteSafetensors(folder.Path("x"), {{"t", StoredType::kF32, {1}, fail}});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(*ReadFile(folder.Path("x")), "old");
  EXPECT_EQ(folder.Count(), 1);
  EXPECT_EQ(WriteSafetensors(folder.Path("no/x"), {}).code(), StatusCode::kNotFound);
}

TEST(Safetensors, RefusesFilesThatAreNone) {
  const TempFolder folder;
  EXPECT_EQ(Safetensors::Open(folder.Path("x")).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Safetensors::Open(folder.Write("x", "1234567")).status().message(),
              HasSubstr("/x: found 7 bytes, expected 8"));
  EXPECT_THAT(Safetensors::Open(folder.Write("x", "PK\x03\x04 a pickle")).status().message(),
              HasSubstr("is it a safetensors file?"));
  EXPECT_EQ(Safetensors::Open("/dev/zero").status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(Safetensors::Open(folder.Path(".")).status().code(), StatusCode::kInvalidInput);
}

TEST(Safetensors, RefusesAFileThatIsCutShortAnywhere) {
  const TempFolder folder;
  folder.Write("x", *ReadFile(ReferencePath()));
  for (uintmax_t size = std::filesystem::file_size(folder.Path("x")); size-- > 0;) {
    std::filesystem::resize_file(folder.Path("x"), size);
    const auto file = Safetensors::Open(folder.Path("x"));
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidInput) << size;
  }
}

TEST(Safetensors, AFileThatBecameShorterIsAnError) {
  const TempFolder folder;
  folder.Write("x", *ReadFile(ReferencePath()));
  const auto file = Safetensors::Open(folder.Path("x"));
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(folder.Path("x"), 100);
  std::byte byte{};
  const Status status = file->Read(*file->Find("u8"), 0, {&byte, 1});
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("/x: ends at byte"));
}

// Two files: "a" in the first, "b" in the second.
class SafetensorsIndex : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("1.safetensors", "a", "aaaa");
    Write("2.safetensors", "b", "bbbb");
  }
  void Write(const std::string& file, const std::string& name, std::string_view bytes) {
    const Status status = WriteSafetensors(
        folder_.Path(file), {FromMemory(name, StoredType::kU8, {4}, AsBytes(bytes))});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  StatusOr<Safetensors> Open(const std::string& weight_map) {
    return Safetensors::Open(
        folder_.Write("model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}"));
  }

  TempFolder folder_;
};

TEST_F(SafetensorsIndex, ReadsTensorsOfAllFiles) {
  const auto index = Open(R"({"b":"2.safetensors","a":"1.safetensors"})");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(index->tensors().size(), 2u);
  EXPECT_EQ(ReadAll(*index, *index->Find("a")), "aaaa");
  EXPECT_EQ(ReadAll(*index, *index->Find("b")), "bbbb");
}

TEST_F(SafetensorsIndex, RefusesAMapThatIsNotTheFiles) {
  EXPECT_THAT(Open(R"({"a":"1.safetensors","b":"3.safetensors"})").status().message(),
              HasSubstr("index.json: "));
  EXPECT_EQ(Open(R"({"a":"3.safetensors"})").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Open(R"({"a":"1.safetensors","c":"2.safetensors"})").status().message(),
              HasSubstr(R"(tensor "b" is in 2.safetensors, but the weight_map does not say so)"));
  EXPECT_THAT(
      Open(R"({"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"})").status().message(),
      HasSubstr(R"(tensor "c" should be in 1.safetensors, which does not have it)"));
  Write("2.safetensors", "a", "cccc");  // in both
  EXPECT_FALSE(Open(R"({"a":"1.safetensors","b":"2.safetensors"})").ok());
}

}  // namespace
}  // namespace foreshard
