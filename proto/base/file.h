// Files in and out: whole, or parts of ones that are too large for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "proto/base/status.h"

namespace foreshard {

// Protobuf's own limit of 2 GiB is above it; no file of this project comes near it.
inline constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// kNotFound when there is no such file; kInvalidInput when it is a directory, cannot be read or
// holds more than `max_bytes`.
StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = kMaxFileBytes);

// Writes a temporary file beside `path`, flushes it to the disk and renames it, so that a reader
// sees the old or the new content and a failure leaves the old one and no temporary. A link is
// followed; a device or pipe is written to directly.
// kNotFound when the folder is missing, kInvalidArgument when `path` cannot be written,
// kUnavailable when the disk fails.
Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// The same in pieces: nothing is at `path` until Commit.
class AtomicFileWriter {
 public:
  // Errors of Create, Append and Commit are those of WriteFileAtomically.
  static StatusOr<AtomicFileWriter> Create(const std::string& path);
  AtomicFileWriter(AtomicFileWriter&&) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) noexcept;
  ~AtomicFileWriter();  // removes the temporary unless it was committed

  Status Append(std::string_view bytes);
  Status Commit();  // once, last

 private:
  struct State;
  explicit AtomicFileWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// An open file that is read in parts. Threads may read at once.
class RandomAccessFile {
 public:
  // kNotFound when there is no such file; kInvalidInput when it is no regular file.
  static StatusOr<RandomAccessFile> Open(const std::string& path);
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened

  // Fills `out` with what stands at `offset`; kInvalidInput when the file ends before.
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;

 private:
  RandomAccessFile(std::string path, int fd, int64_t bytes);
  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace foreshard
