// Quantities as people write and read them. GB is 10^9 and GiB is 2^30, always; a lower-case b is
// a bit, and a bare number counts bytes. What could mean two things ("8k") is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/base/status.h"
#include "proto/base/units.h"

namespace foreshard {

// "80GiB", "80 GB", "141e9", "1.5MiB", "512". Rounds to whole bytes. Errors are kInvalidArgument.
StatusOr<Bytes> ParseBytes(std::string_view text);

// "50GB/s", "50GBps", "25GiB/s", "400Gbps", "400Gb/s", "400Gbit/s", "50e9". Always positive.
StatusOr<BytesPerSecond> ParseBandwidth(std::string_view text);

// A whole number of at least 0: "6738415616", "6,738,415,616", "4e6".
StatusOr<int64_t> ParseCount(std::string_view text);

// "12.55 GiB", "-3.00 MiB", "1.50 KiB", "512 B".
std::string FormatBytes(Bytes bytes);

// "1.234 s", "12.500 ms", "0.350 us".
std::string FormatSeconds(Seconds seconds);

// "6,738,415,616".
std::string FormatCount(int64_t count);

}  // namespace foreshard
