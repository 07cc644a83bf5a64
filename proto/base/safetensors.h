// Files of tensors in the safetensors format (proto/base/safetensors_format.h), read in parts and
// written one tensor after the other, so that neither needs the memory of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "proto/base/file.h"
#include "proto/base/safetensors_format.h"
#include "proto/base/status.h"

namespace foreshard {

// A checked file, or the files of an index. Threads may read at once.
class Safetensors {
 public:
  // `path` is a .safetensors file or an index (.json), which names files in its own folder that
  // hold the tensors of its weight_map and no others. kNotFound for a missing file, kInvalidInput
  // for content that is not as the format says.
  static StatusOr<Safetensors> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // by name
  const StoredTensor* Find(std::string_view name) const;                 // nullptr = none
  // Of the file; empty for an index.
  const StoredMetadata& metadata() const { return metadata_; }

  // The elements [first, first + out.size() / size of an element), as stored. A file that has
  // become shorter is kInvalidInput. REQUIRES: they are the tensor's, whole ones.
  Status Read(const StoredTensor& tensor, int64_t first, std::span<std::byte> out) const;

 private:
  Status AddFile(const std::string& path);
  Status AddIndex();

  std::string path_;
  std::vector<RandomAccessFile> files_;
  std::vector<StoredTensor> tensors_;
  StoredMetadata metadata_;
};

struct TensorToWrite {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  // Gives the bytes from `offset` on that fill `out`. Asked in order, each once.
  std::function<Status(int64_t offset, std::span<std::byte> out)> fill;
};

// From memory, which must live until the file is written.
TensorToWrite FromMemory(std::string name, StoredType type, std::vector<int64_t> shape,
                         std::span<const std::byte> bytes);

// In the order of the reference implementation: by type, then by name. The file appears when all of
// it is there; errors are those of WriteFileAtomically, FormatSafetensorsHeader and `fill`.
Status WriteSafetensors(const std::string& path, std::vector<TensorToWrite> tensors,
                        const StoredMetadata& metadata = {});

}  // namespace foreshard
