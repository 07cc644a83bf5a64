#include "proto/base/safetensors.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <set>
#include <utility>

namespace foreshard {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

std::string_view AsChars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

StatusOr<SafetensorsHeader> ReadHeader(const RandomAccessFile& file) {
  if (file.bytes() < kSafetensorsPrefixBytes) {
    return InvalidInput(file.path() + ": found " + std::to_string(file.bytes()) +
                        " bytes, expected 8 with the header's length");
  }
  std::string head(static_cast<size_t>(kSafetensorsPrefixBytes), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(head))));
  ASSIGN_OR_RETURN(const int64_t length, ParseSafetensorsPrefix(head, file.bytes(), file.path()));
  head.resize(static_cast<size_t>(length));
  RETURN_IF_ERROR(file.ReadAt(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(head))));
  return ParseSafetensorsHeader(head, file.bytes(), file.path());
}

Status AppendTensor(const TensorToWrite& tensor, int64_t bytes, AtomicFileWriter& writer) {
  constexpr int64_t kBlock = 1 << 20;
  std::vector<std::byte> block(static_cast<size_t>(std::min(bytes, kBlock)));
  for (int64_t offset = 0; offset < bytes; offset += kBlock) {
    const auto part = std::span(block).first(static_cast<size_t>(std::min(bytes - offset, kBlock)));
    RETURN_IF_ERROR(tensor.fill(offset, part));
    RETURN_IF_ERROR(writer.Append(AsChars(part)));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Safetensors> Safetensors::Open(const std::string& path) {
  Safetensors opened;
  opened.path_ = path;
  if (path.ends_with(".json")) {
    RETURN_IF_ERROR(opened.AddIndex());
    opened.metadata_.clear();
  } else {
    RETURN_IF_ERROR(opened.AddFile(path));
  }
  std::sort(opened.tensors_.begin(), opened.tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  return opened;
}

Status Safetensors::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
  ASSIGN_OR_RETURN(SafetensorsHeader header, ReadHeader(file));
  for (StoredTensor& tensor : header.tensors) {
    tensor.file = static_cast<int>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  metadata_ = std::move(header.metadata);
  return OkStatus();
}

Status Safetensors::AddIndex() {
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path_, kMaxSafetensorsHeaderBytes));
  ASSIGN_OR_RETURN(auto file_of, ParseSafetensorsIndex(json, path_));
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  for (const std::string& name : names) {
    const size_t known = tensors_.size();
    RETURN_IF_ERROR(AddFile((folder / name).string()).At(path_));
    for (size_t i = known; i < tensors_.size(); ++i) {
      const auto entry = file_of.find(tensors_[i].name);
      if (entry == file_of.end() || entry->second != name) {
        return InvalidInput(path_ + ": tensor " + QuoteName(tensors_[i].name) + " is in " + name +
                            ", but the weight_map does not say so");
      }
      entry->second.clear();  // found
    }
  }
  for (const auto& [tensor, file] : file_of) {
    if (file.empty()) continue;
    return InvalidInput(path_ + ": tensor " + QuoteName(tensor) + " should be in " + file +
                        ", which does not have it");
  }
  return OkStatus();
}

const StoredTensor* Safetensors::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Status Safetensors::Read(const StoredTensor& tensor, int64_t first,
                         std::span<std::byte> out) const {
  const int64_t size = SizeOf(tensor.type);
  const auto bytes = static_cast<int64_t>(out.size());
  CHECK_EQ(bytes % size, 0) << tensor.name;
  CHECK(first >= 0 && first <= tensor.numel - bytes / size) << tensor.name;
  return files_[static_cast<size_t>(tensor.file)].ReadAt(tensor.position + first * size, out);
}

TensorToWrite FromMemory(std::string name, StoredType type, std::vector<int64_t> shape,
                         std::span<const std::byte> bytes) {
  const auto fill = [bytes](int64_t offset, std::span<std::byte> out) {
    const auto part = bytes.subspan(static_cast<size_t>(offset), out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return OkStatus();
  };
  return {std::move(name), type, std::move(shape), fill};
}

Status WriteSafetensors(const std::string& path, std::vector<TensorToWrite> tensors,
                        const StoredMetadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  std::vector<StoredTensor> stored;
  for (const TensorToWrite& t : tensors) stored.push_back({t.name, t.type, t.shape, 0, 0, 0});
  const StatusOr<std::string> head = FormatSafetensorsHeader(stored, metadata);
  if (!head.ok()) return head.status().At(path);
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(writer.Append(*head));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = stored[i].numel * SizeOf(stored[i].type);
    RETURN_IF_ERROR(AppendTensor(tensors[i], bytes, writer));
  }
  return writer.Commit();
}

}  // namespace foreshard
