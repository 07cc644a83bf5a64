// Arithmetic in fp32 on tensors of any floating-point type, some elements at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/convert.h"

namespace foreshard::exec {

inline constexpr int64_t kChunk = 1024;

// A chunk of one tensor as floats: where it lies if it is fp32, else a converted copy.
class Chunk {
 public:
  // REQUIRES: numel <= kChunk.
  Chunk(std::byte* tensor, DType dtype, int64_t begin, int64_t numel)
      : source_(tensor + begin * SizeOf(dtype)), dtype_(dtype), numel_(numel) {
    if (dtype == DType::kFp32) return;
    ConvertElements(source_, dtype, copy_, DType::kFp32, numel);
  }
  float* data() { return dtype_ == DType::kFp32 ? reinterpret_cast<float*>(source_) : copy_; }
  // Rounds what was computed into the tensor.
  void Store() {
    if (dtype_ == DType::kFp32) return;
    ConvertElements(copy_, DType::kFp32, source_, dtype_, numel_);
  }

 private:
  std::byte* source_;
  DType dtype_;
  int64_t numel_;
  float copy_[kChunk];
};

}  // namespace foreshard::exec
