// Any bytes as a safetensors file and as an index of such files.
#include <algorithm>

#include "proto/base/safetensors_format.h"
#include "tests/fuzz/fuzz_target.h"

namespace foreshard {
namespace {

void RequireRefusal(const Status& status) {
  fuzz::Require(status.code() == StatusCode::kInvalidInput, "refused as input");
  fuzz::Require(status.message().find('\n') == std::string::npos, "refused in one line");
}

// The tensors lie in the file, one behind the other, and formatting the header again loses nothing.
void CheckHeader(SafetensorsHeader header, int64_t data_start, int64_t file_bytes) {
  std::vector<StoredTensor>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.position != b.position ? a.position < b.position : a.numel < b.numel;
  });
  int64_t end = data_start;
  for (const StoredTensor& tensor : tensors) {
    fuzz::Require(tensor.position == end, "tensors follow each other");
    end += tensor.numel * SizeOf(tensor.type);
  }
  fuzz::Require(end == file_bytes, "tensors fill the file");
  const StatusOr<std::string> head = FormatSafetensorsHeader(tensors, header.metadata);
  fuzz::Require(head.ok(), head.ok() ? "" : head.status().message());
  const auto size = static_cast<int64_t>(head->size());
  const auto again =
      ParseSafetensorsHeader(head->substr(8), size + file_bytes - data_start, "again");
  fuzz::Require(again.ok() && again->metadata == header.metadata, "what was written is read");
  fuzz::Require(again->tensors.size() == tensors.size(), "and has every tensor");
}

}  // namespace
}  // namespace foreshard

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  const std::string_view text = fuzz::AsText(data, size);
  if (const auto index = ParseSafetensorsIndex(text, "fuzz"); !index.ok()) {
    RequireRefusal(index.status());
  }
  if (text.size() < 8) return 0;
  const auto file_bytes = static_cast<int64_t>(size);
  const StatusOr<int64_t> length = ParseSafetensorsPrefix(text.substr(0, 8), file_bytes, "fuzz");
  // Mutants seldom keep the length right: what is left is then the header of a file without data.
  const std::string_view json =
      length.ok() ? text.substr(8, static_cast<size_t>(*length)) : text.substr(8);
  const StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(json, file_bytes, "fuzz");
  if (header.ok()) {
    CheckHeader(*header, 8 + static_cast<int64_t>(json.size()), file_bytes);
  } else {
    RequireRefusal(header.status());
  }
  return 0;
}
