// Memory that libraries of kernels take from the allocator for themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace foreshard::oplib {

// What `library` ("cublas") keeps on a GPU of `arch` ("sm80") for the stream it runs on, in bytes;
// nullopt where either is unknown.
std::optional<int64_t> WorkspaceBytes(std::string_view library, std::string_view arch);

}  // namespace foreshard::oplib
