// The safetensors format: 8 bytes with the length of a JSON header (little-endian), the header, the
// tensors' bytes. Pure functions; proto/base/safetensors.h has the files.
//
//   {"__metadata__": {"key": "value"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
//   [0, 24]}}
//
// Offsets count from the end of the header. Tensors are row-major and little-endian, and fill the
// rest of the file without holes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/status.h"

namespace foreshard {

// In the order of the reference implementation, which stores tensors of later types first, so that
// each is aligned. Types of less than a byte are not among them.
enum class StoredType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
int64_t SizeOf(StoredType type);         // bytes of an element
std::string_view Name(StoredType type);  // "F32"

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;  // empty = one element
  int64_t numel = 0;
  int file = 0;          // position in the list of files of a sharded checkpoint
  int64_t position = 0;  // of its first byte, from the start of the file
};

using StoredMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by name
  StoredMetadata metadata;
};

inline constexpr int64_t kSafetensorsPrefixBytes = 8;
// The reference implementation's own limit.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The header's length. REQUIRES: `prefix` has 8 bytes.
StatusOr<int64_t> ParseSafetensorsPrefix(std::string_view prefix, int64_t file_bytes,
                                         std::string_view origin);

// Errors are kInvalidInput: `origin`, the tensor, what was found and what was expected.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                   std::string_view origin);

// The bytes before the tensors' own, which follow in the order of `tensors`. Fills in their numel
// and position. kInvalidArgument for a name twice or not UTF-8, "__metadata__", a negative dim, and
// sizes past the format's.
StatusOr<std::string> FormatSafetensorsHeader(std::vector<StoredTensor>& tensors,
                                              const StoredMetadata& metadata);

// "weight_map" of a model.safetensors.index.json: the file of each tensor, a plain name.
StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json,
                                                                   std::string_view origin);

// For messages: in quotes and on one line, whatever it is.
std::string QuoteName(std::string_view name);
// "[2, 3]".
std::string FormatShape(const std::vector<int64_t>& shape);

}  // namespace foreshard
