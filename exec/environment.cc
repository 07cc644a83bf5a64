#include "exec/environment.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "exec/cpu/kernel.h"
#include "exec/cpu/sanitizers.h"

namespace foreshard::exec {
namespace {

// "key : value" of a file of such lines; empty when there is none.
std::string Line(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

// "24684084 kB" in bytes; 0 when it is no number.
int64_t Kilobytes(const std::string& text) {
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10) * 1024;
}

// A number in a file; -1 when there is none ("max").
int64_t NumberIn(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

std::string Build() {
  std::string build = FORESHARD_BUILD_TYPE;
#ifdef FORESHARD_ASAN
  build += " with AddressSanitizer";
#endif
#ifdef FORESHARD_TSAN
  build += " with ThreadSanitizer";
#endif
  return build;
}

}  // namespace

pb::Environment DescribeHost() {
  pb::Environment host;
  host.set_device(Line("/proc/cpuinfo", "model name"));
  host.set_cores(static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  host.set_memory_bytes(Kilobytes(Line("/proc/meminfo", "MemTotal")));
  utsname system{};
  if (uname(&system) == 0) {
    host.set_operating_system(
        fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  }
#ifdef __clang__
  host.set_compiler("clang " __clang_version__);
#else
  host.set_compiler("gcc " __VERSION__);
#endif
  host.set_build(Build());
  host.add_libraries(fmt::format("OpenBLAS ({})", BlasCore()));
  return host;
}

int64_t AvailableMemory() {
  int64_t available = Kilobytes(Line("/proc/meminfo", "MemAvailable"));
  const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max");
  const int64_t used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0) available = std::min(available, std::max<int64_t>(limit - used, 1));
  return available;
}

}  // namespace foreshard::exec
