#include "proto/base/dtype.h"

#include <string>

namespace foreshard {

std::string_view Name(DType t) {
  switch (t) {
    case DType::kFp32:
      return "fp32";
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kInt64:
      return "int64";
    case DType::kUint64:
      return "uint64";
    case DType::kBool:
      return "bool";
    case DType::kUint8:
      return "uint8";
  }
  return "?";
}

StatusOr<DType> ParseDType(std::string_view text) {
  std::string_view s = text;
  if (s.starts_with("torch.")) s.remove_prefix(6);
  if (s == "fp32" || s == "float32" || s == "float") return DType::kFp32;
  if (s == "bf16" || s == "bfloat16") return DType::kBf16;
  if (s == "fp16" || s == "float16" || s == "half") return DType::kFp16;
  if (s == "int64" || s == "long") return DType::kInt64;
  if (s == "uint64") return DType::kUint64;
  if (s == "bool") return DType::kBool;
  if (s == "uint8") return DType::kUint8;
  return InvalidArgument("unknown dtype \"" + std::string(text) +
                         "\"; expected fp32, bf16, fp16 (or float32, bfloat16, float16)");
}

}  // namespace foreshard
