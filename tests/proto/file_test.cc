#include "proto/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace foreshard {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// An empty folder of its own for each test.
class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "foreshard_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  size_t FilesInFolder() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, WrittenBytesReadBack) {
  const std::string bytes("a\0b\n\xff", 5);
  ASSERT_TRUE(WriteFileAtomically(Path("x"), bytes).ok());
  const StatusOr<std::string> read = ReadFile(Path("x"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, bytes);
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(FileTest, WritingReplacesTheOldContent) {
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "a long first version").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "second").ok());
  EXPECT_EQ(*ReadFile(Path("x")), "second");
}

TEST_F(FileTest, WritingFollowsALink) {
  ASSERT_TRUE(WriteFileAtomically(Path("target"), "old").ok());
  fs::create_symlink("target", Path("link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(*ReadFile(Path("target")), "new");
}

TEST_F(FileTest, WritingToADeviceLeavesItADevice) {
  ASSERT_TRUE(WriteFileAtomically("/dev/null", "gone").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, ReadsAnEmptyFile) {
  ASSERT_TRUE(WriteFileAtomically(Path("empty"), "").ok());
  EXPECT_EQ(*ReadFile(Path("empty")), "");
}

TEST_F(FileTest, ReadingWhatIsNotThereIsNotFound) {
  EXPECT_EQ(ReadFile(Path("none")).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "").ok());
  EXPECT_EQ(ReadFile(Path("x/y")).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ReadFile(Path("none")).status().message(), HasSubstr("/none: no such file"));
}

TEST_F(FileTest, ReadingADirectoryIsInvalidInput) {
  const Status status = ReadFile(folder_.string()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("is a directory"));
}

TEST_F(FileTest, ReadingStopsAtTheLimit) {
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "12345").ok());
  EXPECT_TRUE(ReadFile(Path("x"), 5).ok());
  EXPECT_EQ(ReadFile(Path("x"), 4).status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(ReadFile("/dev/zero", 1 << 20).status().code(), StatusCode::kInvalidInput);
}

TEST_F(FileTest, WritingIntoAMissingFolderIsNotFound) {
  const Status status = WriteFileAtomically(Path("none/x"), "");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("folder"));
}

TEST_F(FileTest, WritingOverADirectoryIsRefused) {
  EXPECT_EQ(WriteFileAtomically(folder_.string(), "").code(), StatusCode::kInvalidArgument);
}

TEST_F(FileTest, AFailedWriteKeepsTheOldContentAndNoTemporary) {
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "old").ok());
  // A limit on file sizes stands in for a full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteFileAtomically(Path("x"), std::string(10'000, 'n'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(*ReadFile(Path("x")), "old");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(FileTest, PiecesAreAFileOnlyOnceCommitted) {
  {
    StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Create(Path("x"));
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    ASSERT_TRUE(writer->Append("half").ok());
    EXPECT_EQ(ReadFile(Path("x")).status().code(), StatusCode::kNotFound);
  }
  EXPECT_EQ(FilesInFolder(), 0u);
  StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Create(Path("x"));
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->Append("one ").ok() && writer->Append("two").ok() && writer->Commit().ok());
  EXPECT_EQ(*ReadFile(Path("x")), "one two");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(FileTest, ReadsPartsOfAFile) {
  ASSERT_TRUE(WriteFileAtomically(Path("x"), "0123456789").ok());
  const StatusOr<RandomAccessFile> file = RandomAccessFile::Open(Path("x"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->bytes(), 10);
  std::string part(3, ' ');
  ASSERT_TRUE(file->ReadAt(7, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "789");
  const Status past = file->ReadAt(8, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(past.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(past.message(), HasSubstr("/x: ends at byte 10, expected 1 more"));
}

TEST_F(FileTest, PartsAreReadOfRegularFilesOnly) {
  EXPECT_EQ(RandomAccessFile::Open(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RandomAccessFile::Open("/dev/zero").status().code(), StatusCode::kInvalidInput);
  EXPECT_EQ(RandomAccessFile::Open(folder_.string()).status().code(), StatusCode::kInvalidInput);
}

}  // namespace
}  // namespace foreshard
