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
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool Close() {
    const int fd = std::exchange(fd_, -1);
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

Status WriteDirectly(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || !WriteAll(file.get(), bytes)) return WriteError(path, errno);
  return OkStatus();
}

// A crash after the rename must not bring the old name back. Some file systems cannot do it.
void FlushFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  Descriptor fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) static_cast<void>(::fsync(fd.get()));
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return NotFound(path + ": no such file");
    return InvalidInput(path + ": cannot open: " + Reason(error));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return InvalidInput(path + ": " + Reason(errno));
  if (S_ISDIR(info.st_mode)) return InvalidInput(path + ": is a directory, expected a file");

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

Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  std::string target = path;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return WriteError(path, EISDIR);
    if (!S_ISREG(info.st_mode)) return WriteDirectly(path, bytes);
    std::error_code error;
    target = std::filesystem::canonical(path, error).string();
    if (error) return WriteError(path, error.value());
  }
  std::string temporary;
  Descriptor file(OpenTemporary(target, temporary));
  if (file.get() < 0) return WriteError(path, errno);
  if (!WriteAll(file.get(), bytes) || ::fsync(file.get()) != 0 || !file.Close() ||
      ::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return WriteError(path, error);
  }
  FlushFolderOf(target);
  return OkStatus();
}

}  // namespace foreshard
