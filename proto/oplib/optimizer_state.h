// How optimizers keep their moments.
#pragma once

#include <cstdint>

#include "proto/base/dtype.h"
#include "proto/plan.pb.h"

namespace foreshard::oplib {

// AdamW in 8 bits shares a scale among this many elements of a moment.
inline constexpr int64_t kQuantizedBlock = 256;
// ... and has a table of what each of 256 codes stands for with every moment.
inline constexpr int64_t kQuantizationMapBytes = 256 * 4;

// Whether a moment of `numel` elements is kept in 8 bits: codes, then scales, then the table.
inline bool IsQuantized(pb::OptimizerKind kind, int64_t numel) {
  return kind == pb::ADAMW_8BIT && numel >= 4096 && numel % kQuantizedBlock == 0;
}

inline int64_t MomentBytes(pb::OptimizerKind kind, int64_t numel, int64_t element_bytes) {
  if (!IsQuantized(kind, numel)) return numel * element_bytes;
  return numel + numel / kQuantizedBlock * SizeOf(DType::kFp32) + kQuantizationMapBytes;
}

// The dtype of moments, of which an op says `given`.
inline pb::DType MomentDType(const pb::Plan& plan, pb::DType given) {
  return given == pb::DTYPE_UNSPECIFIED ? plan.decisions().original_dtype() : given;
}

// Moments of each parameter.
inline int MomentCount(pb::OptimizerKind kind, double momentum) {
  if (kind == pb::ADAMW || kind == pb::ADAMW_8BIT) return 2;
  return kind == pb::SGD && momentum != 0 ? 1 : 0;
}

// Elements that an update which goes from one parameter to the next holds beside the state, in
// bytes, at a parameter of `numel` elements after one of `before`. docs/fsdp2.md says what they
// are.
inline int64_t LoopTemporaryBytes(pb::OptimizerKind kind, int64_t numel, int64_t before,
                                  int64_t parameter_bytes, int64_t moment_bytes) {
  switch (kind) {
    case pb::ADAMW:
      return (2 * numel + before) * moment_bytes;
    case pb::ADAMW_8BIT:
      if (!IsQuantized(kind, numel)) return 0;
      return 2 * (numel + numel / kQuantizedBlock) * SizeOf(DType::kFp32);
    default:
      return numel * parameter_bytes;
  }
}

}  // namespace foreshard::oplib
