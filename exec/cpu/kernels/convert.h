// Reading and writing rows of elements of any dtype as floats. Kernels compute on short runs of
// floats: fp32 with unit stride is used where it lies, everything else passes through a buffer.
#pragma once

#include <cstdint>

#include "exec/cpu/kernel.h"

namespace foreshard::exec::KERNEL_ISA {

// Elements that pass through a buffer at once; a multiple of the lanes of kernels/reduce.h.
inline constexpr int64_t kChunk = 1024;

// n elements from `offset` on, `stride` apart; both in elements.
struct Run {
  int64_t offset = 0;
  int64_t stride = 1;
  int64_t n = 0;
};

// Booleans are 0 and 1. Integers are rounded to nearest.
void LoadFloats(const TensorView& from, Run run, float* to);
// To integers: towards zero. To booleans: whether it is not zero.
void StoreFloats(const float* from, const TensorView& to, Run run);

// The run in place if that can be, else null.
inline float* InPlace(const TensorView& t, Run run) {
  const bool direct = t.dtype == DType::kFp32 && (run.stride == 1 || run.n == 1);
  return direct ? static_cast<float*>(t.data) + run.offset : nullptr;
}

// The run as floats, in place or in `buffer`.
inline const float* ReadFloats(const TensorView& from, Run run, float* buffer) {
  if (const float* direct = InPlace(from, run)) return direct;
  LoadFloats(from, run, buffer);
  return buffer;
}

// Where to compute the run of a result: in place or in `buffer`, which Commit then writes.
inline float* Target(const TensorView& to, Run run, float* buffer) {
  float* direct = InPlace(to, run);
  return direct != nullptr ? direct : buffer;
}
inline void Commit(const float* computed, const TensorView& to, Run run) {
  if (computed != InPlace(to, run)) StoreFloats(computed, to, run);
}

// One element.
float LoadFloat(const TensorView& from, int64_t offset);
void StoreFloat(float value, const TensorView& to, int64_t offset);
int64_t LoadInt(const TensorView& from, int64_t offset);
void StoreInt(int64_t value, const TensorView& to, int64_t offset);

// Copies a run to another: bit by bit if the dtypes agree, else as floats.
void CopyRun(const TensorView& from, Run source, const TensorView& to, Run target);
void FillRun(double value, const TensorView& to, Run run);

}  // namespace foreshard::exec::KERNEL_ISA
