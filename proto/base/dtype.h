// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/base/status.h"

namespace foreshard {

// Values are those of pb::DType in proto/plan.proto.
enum class DType : int {
  kFp32 = 1,
  kBf16 = 2,
  kFp16 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kBool = 6,
  kUint8 = 7
};

constexpr int64_t SizeOf(DType t) {
  switch (t) {
    case DType::kFp32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kInt64:
    case DType::kUint64:
      return 8;
    case DType::kBool:
    case DType::kUint8:
      return 1;
  }
  return 0;
}

// "fp32", "bf16", "fp16", "int64", "uint64", "bool", "uint8".
std::string_view Name(DType t);

// Accepts the short names and PyTorch's ("float32", "bfloat16", "torch.float16", ...).
StatusOr<DType> ParseDType(std::string_view text);

}  // namespace foreshard
