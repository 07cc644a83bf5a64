#include "proto/base/safetensors_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "proto/base/strict_json.h"

namespace foreshard {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr int64_t kAlignment = 8;
constexpr int64_t kMaxDataBytes = int64_t{1} << 62;  // leaves room for the header

struct TypeRow {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<TypeRow, 17> kTypes = {{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"C64", 8},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
}};

std::optional<StoredType> TypeOf(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<StoredType>(i);
  }
  return std::nullopt;
}

std::string KnownTypes() {
  std::string names;
  for (const TypeRow& row : kTypes) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// A value for an error message: short, one line.
std::string Shown(const Json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

std::optional<int64_t> CountIn(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(value.get<uint64_t>());
}

// Whole numbers of at least 0, and nothing else.
std::optional<std::vector<int64_t>> CountsIn(const Json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<int64_t> counts;
  for (const Json& item : value) {
    const std::optional<int64_t> count = CountIn(item);
    if (!count) return std::nullopt;
    counts.push_back(*count);
  }
  return counts;
}

// Sets numel and gives the bytes; absent when they do not fit or a dim is negative.
std::optional<int64_t> Measure(StoredTensor& tensor) {
  const auto negative = [](int64_t dim) { return dim < 0; };
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), negative)) return std::nullopt;
  int64_t bytes = SizeOf(tensor.type);
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) bytes = 0;
  for (const int64_t dim : tensor.shape) {
    if (bytes > 0 && __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  tensor.numel = bytes / SizeOf(tensor.type);
  return bytes;
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// One entry of the header. The tensor's position stays the offset that the file says.
StatusOr<std::pair<StoredTensor, Range>> ParseEntry(const std::string& name, const Json& entry) {
  if (!entry.is_object()) {
    return InvalidInput("found " + Shown(entry) + ", expected an object");
  }
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return InvalidInput("unknown field " + QuoteName(key) +
                          "; expected dtype, shape and data_offsets");
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) return InvalidInput("has no " + std::string(key));
  }
  StoredTensor tensor;
  tensor.name = name;
  const Json& dtype = entry["dtype"];
  const auto type = dtype.is_string() ? TypeOf(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!type) {
    return InvalidInput("dtype: found " + Shown(dtype) + ", expected one of " + KnownTypes());
  }
  tensor.type = *type;
  const auto shape = CountsIn(entry["shape"]);
  if (!shape) {
    return InvalidInput("shape: found " + Shown(entry["shape"]) +
                        ", expected a list of whole numbers");
  }
  tensor.shape = *shape;
  const auto offsets = CountsIn(entry["data_offsets"]);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return InvalidInput("data_offsets: found " + Shown(entry["data_offsets"]) +
                        ", expected [begin, end] with begin <= end");
  }
  const Range range = {(*offsets)[0], (*offsets)[1]};
  const std::optional<int64_t> bytes = Measure(tensor);
  if (!bytes || *bytes != range.end - range.begin) {
    return InvalidInput("data_offsets: found " + std::to_string(range.end - range.begin) +
                        " bytes, expected " + (bytes ? std::to_string(*bytes) : "over 2^63") +
                        " for " + std::string(Name(tensor.type)) + " " + FormatShape(tensor.shape));
  }
  tensor.position = range.begin;
  return std::pair{std::move(tensor), range};
}

StatusOr<StoredMetadata> ParseMetadata(const Json& value) {
  if (!value.is_object()) return InvalidInput("found " + Shown(value) + ", expected an object");
  StoredMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return InvalidInput(QuoteName(key) + ": found " + Shown(text) + ", expected a string");
    }
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The tensors' bytes are the file's, each once.
Status CheckTiling(std::vector<std::pair<const StoredTensor*, Range>> placed, int64_t data_bytes) {
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.begin, a.second.end) < std::tie(b.second.begin, b.second.end);
  });
  int64_t end = 0;
  std::string before = "the header";
  for (const auto& [tensor, range] : placed) {
    if (range.begin != end) {
      return InvalidInput("tensor " + QuoteName(tensor->name) + ": starts at byte " +
                          std::to_string(range.begin) + " of the data, expected " +
                          std::to_string(end) + ", where " + before + " ends (" +
                          (range.begin < end ? "they overlap" : "a hole") + ")");
    }
    end = range.end;
    before = "tensor " + QuoteName(tensor->name);
  }
  if (end == data_bytes) return OkStatus();
  return InvalidInput(before + ": the data ends at byte " + std::to_string(end) +
                      ", but the file has " + std::to_string(data_bytes) +
                      " bytes of it (cut short, or something else behind it?)");
}

}  // namespace

int64_t SizeOf(StoredType type) { return kTypes[static_cast<size_t>(type)].bytes; }
std::string_view Name(StoredType type) { return kTypes[static_cast<size_t>(type)].name; }

std::string QuoteName(std::string_view name) {
  return Json(name).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string FormatShape(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

StatusOr<int64_t> ParseSafetensorsPrefix(std::string_view prefix, int64_t file_bytes,
                                         std::string_view origin) {
  CHECK_EQ(prefix.size(), static_cast<size_t>(kSafetensorsPrefixBytes));
  uint64_t length = 0;
  for (int i = 0; i < kSafetensorsPrefixBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(prefix[static_cast<size_t>(i)])} << (8 * i);
  }
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsPrefixBytes);
  if (most >= 0 && length <= static_cast<uint64_t>(most)) return static_cast<int64_t>(length);
  return InvalidInput(std::string(origin) + ": found a header of " + std::to_string(length) +
                      " bytes, expected " + std::to_string(most) + " at most in a file of " +
                      std::to_string(file_bytes) + " (is it a safetensors file?)");
}

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes,
                                                   std::string_view origin) {
  const std::string where(origin);
  if (!json.starts_with('{')) {
    return InvalidInput(where + ": the header does not start with {: is it a safetensors file?");
  }
  ASSIGN_OR_RETURN(const Json root, ParseStrictJson(json, where + ": header"));
  const int64_t data_start = kSafetensorsPrefixBytes + static_cast<int64_t>(json.size());
  SafetensorsHeader header;
  header.tensors.reserve(root.size());  // `placed` points into it
  std::vector<std::pair<const StoredTensor*, Range>> placed;
  for (const auto& [name, entry] : root.items()) {
    if (name == kMetadataKey) {
      StatusOr<StoredMetadata> metadata = ParseMetadata(entry);
      if (!metadata.ok()) return metadata.status().At(kMetadataKey).At(where);
      header.metadata = std::move(metadata).value();
      continue;
    }
    StatusOr<std::pair<StoredTensor, Range>> parsed = ParseEntry(name, entry);
    if (!parsed.ok()) return parsed.status().At(where + ": tensor " + QuoteName(name));
    header.tensors.push_back(std::move(parsed->first));
    placed.emplace_back(&header.tensors.back(), parsed->second);
  }
  RETURN_IF_ERROR(CheckTiling(std::move(placed), file_bytes - data_start).At(where));
  for (StoredTensor& tensor : header.tensors) tensor.position += data_start;
  return header;
}

StatusOr<std::string> FormatSafetensorsHeader(std::vector<StoredTensor>& tensors,
                                              const StoredMetadata& metadata) {
  std::string json = "{";
  try {
    if (!metadata.empty()) json += Json(kMetadataKey).dump() + ":" + Json(metadata).dump();
    std::set<std::string_view> names = {kMetadataKey};
    int64_t end = 0;
    for (StoredTensor& tensor : tensors) {
      const std::string name = Json(tensor.name).dump();
      if (!names.insert(tensor.name).second) {
        return InvalidArgument("tensor " + name + ": the name is taken");
      }
      const std::optional<int64_t> bytes = Measure(tensor);
      tensor.position = end;
      if (!bytes || *bytes > kMaxDataBytes - end) {
        return InvalidArgument("tensor " + name + ": found the shape " + FormatShape(tensor.shape) +
                               ", expected at most 2^62 bytes in all");
      }
      end += *bytes;
      if (json.size() > 1) json += ",";
      json += name + R"(:{"dtype":")" + std::string(Name(tensor.type)) + R"(","shape":)" +
              Json(tensor.shape).dump() + R"(,"data_offsets":)" +
              Json({tensor.position, end}).dump() + "}";
    }
  } catch (const Json::type_error& error) {  // dump's only one
    return InvalidArgument("a name or metadata is not UTF-8: " + std::string(error.what()));
  }
  json += "}";
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxSafetensorsHeaderBytes) {
    return InvalidArgument("found a header of " + std::to_string(json.size()) +
                           " bytes, expected " + std::to_string(kMaxSafetensorsHeaderBytes) +
                           " at most");
  }
  std::string head(static_cast<size_t>(kSafetensorsPrefixBytes), '\0');
  for (int i = 0; i < kSafetensorsPrefixBytes; ++i) {
    head[static_cast<size_t>(i)] = static_cast<char>(json.size() >> (8 * i));
  }
  head += json;
  for (StoredTensor& tensor : tensors) tensor.position += static_cast<int64_t>(head.size());
  return head;
}

StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json,
                                                                   std::string_view origin) {
  const std::string where(origin);
  ASSIGN_OR_RETURN(const Json root, ParseStrictJson(json, where));
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return InvalidInput(where +
                        ": found no object \"weight_map\", expected tensors and their files");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : root["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    const bool plain = !file.empty() && file != "." && file != ".." &&
                       file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain) {
      return InvalidInput(where + ": tensor " + QuoteName(name) + ": found the file " +
                          Shown(value) + ", expected the name of one in the same folder");
    }
    files[name] = file;
  }
  return files;
}

}  // namespace foreshard
