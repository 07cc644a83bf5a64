#include "proto/oplib/workspace.h"

#include <algorithm>

namespace foreshard::oplib {
namespace {

// "sm80" is 80; 0 for what is no architecture.
int ArchNumber(std::string_view arch) {
  if (!arch.starts_with("sm") || arch.size() < 4 || arch.size() > 5) return 0;
  int number = 0;
  for (const char c : arch.substr(2)) {
    if (c < '0' || c > '9') return 0;
    number = 10 * number + (c - '0');
  }
  return number;
}

}  // namespace

std::optional<int64_t> WorkspaceBytes(std::string_view library, std::string_view arch) {
  const int number = ArchNumber(arch);
  if (library != "cublas" || number == 0) return std::nullopt;
  // PyTorch's defaults (CUBLAS_WORKSPACE_CONFIG): 2 x 4 MiB + 8 x 16 KiB before Hopper
  // (":4096:2:16:8"), 32 MiB from sm90 on.
  constexpr int64_t kKiB = 1024;
  return number < 90 ? 2 * 4096 * kKiB + 8 * 16 * kKiB : 32768 * kKiB;
}

}  // namespace foreshard::oplib
