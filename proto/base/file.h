// Whole files in and out.
#pragma once

#include <cstdint>
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

}  // namespace foreshard
