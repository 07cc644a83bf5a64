#include "proto/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace foreshard {
namespace {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  bool Close() {
    const int fd = Release();
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

std::string Reason(int error) { return std::generic_category().message(error); }

Status WriteError(const std::string& path, int error) {
  const std::string message = path + ": cannot write: " + Reason(error);
  switch (error) {
    case ENOENT:
      return NotFound(message + " (does the folder exist?)");
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return InvalidArgument(message);
    default:
      return Unavailable(message);
  }
}

// False with errno set on failure.
bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Opens a file that did not exist, named after `target`, and puts its name into `name`.
// -1 with errno set on failure.
int OpenTemporary(const std::string& target, std::string& name) {
  constexpr int kAttempts = 100;  // each busy name is another writer's
  for (int i = 0; i < kAttempts; ++i) {
    name = target + ".tmp" + std::to_string(::getpid()) + "-" + std::to_string(i);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// A crash after the rename must not bring the old name back. Some file systems cannot do it.
void FlushFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  Descriptor fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) static_cast<void>(::fsync(fd.get()));
}

// The file, which is no directory, and what is known of it.
StatusOr<Descriptor> OpenToRead(const std::string& path, struct stat& info) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return NotFound(path + ": no such file");
    return InvalidInput(path + ": cannot open: " + Reason(error));
  }
  if (::fstat(file.get(), &info) != 0) return InvalidInput(path + ": " + Reason(errno));
  if (S_ISDIR(info.st_mode)) return InvalidInput(path + ": is a directory, expected a file");
  return file;
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  struct stat info {};
  ASSIGN_OR_RETURN(const Descriptor file, OpenToRead(path, info));

  std::string content;
  if (S_ISREG(info.st_mode) && info.st_size <= max_bytes) {
    content.reserve(static_cast<size_t>(info.st_size));
  }
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t n = ::read(file.get(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InvalidInput(path + ": cannot read: " + Reason(errno));
    if (n == 0) return content;
    if (static_cast<int64_t>(content.size()) + n > max_bytes) {
      return InvalidInput(path + ": larger than " + std::to_string(max_bytes) + " bytes");
    }
    content.append(block.data(), static_cast<size_t>(n));
  }
}

struct AtomicFileWriter::State {
  explicit State(Descriptor opened) : file(std::move(opened)) {}
  ~State() {
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string path;       // for errors
  std::string target;     // `path` with links followed
  std::string temporary;  // empty once committed, or for a device
  Descriptor file;
};

AtomicFileWriter::AtomicFileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&&) noexcept = default;
AtomicFileWriter& AtomicFileWriter::operator=(AtomicFileWriter&&) noexcept = default;
AtomicFileWriter::~AtomicFileWriter() = default;

StatusOr<AtomicFileWriter> AtomicFileWriter::Create(const std::string& path) {
  std::string target = path;
  std::string temporary;
  struct stat info {};
  int fd = -1;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) return WriteError(path, EISDIR);
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (info.st_nlink > 0) {  // it exists
      std::error_code error;
      target = std::filesystem::canonical(path, error).string();
      if (error) return WriteError(path, error.value());
    }
    fd = OpenTemporary(target, temporary);
  }
  if (fd < 0) return WriteError(path, errno);
  auto state = std::make_unique<State>(Descriptor(fd));
  state->path = path;
  state->target = std::move(target);
  state->temporary = std::move(temporary);
  return AtomicFileWriter(std::move(state));
}

Status AtomicFileWriter::Append(std::string_view bytes) {
  if (!WriteAll(state_->file.get(), bytes)) return WriteError(state_->path, errno);
  return OkStatus();
}

Status AtomicFileWriter::Commit() {
  State& s = *state_;
  if (s.temporary.empty()) return s.file.Close() ? OkStatus() : WriteError(s.path, errno);
  if (::fsync(s.file.get()) != 0 || !s.file.Close() ||
      ::rename(s.temporary.c_str(), s.target.c_str()) != 0) {
    return WriteError(s.path, errno);
  }
  s.temporary.clear();
  FlushFolderOf(s.target);
  return OkStatus();
}

Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(writer.Append(bytes));
  return writer.Commit();
}

RandomAccessFile::RandomAccessFile(std::string path, int fd, int64_t bytes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<RandomAccessFile> RandomAccessFile::Open(const std::string& path) {
  struct stat info {};
  ASSIGN_OR_RETURN(Descriptor file, OpenToRead(path, info));
  if (!S_ISREG(info.st_mode)) return InvalidInput(path + ": is a device or pipe, expected a file");
  return RandomAccessFile(path, file.Release(), info.st_size);
}

Status RandomAccessFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InvalidInput(path_ + ": cannot read: " + Reason(errno));
    if (n == 0) {
      return InvalidInput(path_ + ": ends at byte " + std::to_string(offset) + ", expected " +
                          std::to_string(out.size()) + " more");
    }
    offset += n;
    out = out.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

}  // namespace foreshard
