#include "exec/cpu/kernels/convert.h"

#include <cstring>

#include "exec/cpu/kernels/half.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// How each dtype lies in memory and what it means as a float.
struct Fp32 {
  using Stored = float;
  static float Load(float x) { return x; }
  static float Store(float x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  static float Load(uint16_t x) { return FromBf16(x); }
  static uint16_t Store(float x) { return ToBf16(x); }
};
struct Fp16 {
  using Stored = uint16_t;
  static float Load(uint16_t x) { return FromFp16(x); }
  static uint16_t Store(float x) { return ToFp16(x); }
};
struct Int64 {
  using Stored = int64_t;
  static float Load(int64_t x) { return static_cast<float>(x); }
  // What no int64 can hold, not-a-number too, becomes the smallest one, as the hardware has it.
  static int64_t Store(float x) {
    const bool fits = x >= -0x1p63F && x < 0x1p63F;
    return fits ? static_cast<int64_t>(x) : INT64_MIN;
  }
};
struct Uint64 {
  using Stored = uint64_t;
  static float Load(uint64_t x) { return static_cast<float>(x); }
  static uint64_t Store(float x) {
    const bool fits = x >= 0 && x < 0x1p64F;
    return fits ? static_cast<uint64_t>(x) : 0;
  }
};
struct Bool {
  using Stored = uint8_t;
  static float Load(uint8_t x) { return x != 0 ? 1 : 0; }
  static uint8_t Store(float x) { return x != 0 ? 1 : 0; }
};

struct Uint8 {
  using Stored = uint8_t;
  static float Load(uint8_t x) { return x; }
  // What no uint8 can hold becomes 0.
  static uint8_t Store(float x) {
    const bool fits = x > -1 && x < 256;
    return fits ? static_cast<uint8_t>(x) : 0;
  }
};

// Calls `use` with the format of a dtype.
template <typename Use>
void WithFormat(DType dtype, Use use) {
  switch (dtype) {
    case DType::kFp32:
      return use(Fp32());
    case DType::kBf16:
      return use(Bf16());
    case DType::kFp16:
      return use(Fp16());
    case DType::kInt64:
      return use(Int64());
    case DType::kUint64:
      return use(Uint64());
    case DType::kBool:
      return use(Bool());
    case DType::kUint8:
      return use(Uint8());
  }
}

template <typename T>
T* At(const TensorView& t, int64_t offset) {
  return static_cast<T*>(t.data) + offset;
}

template <typename Format>
void Load(const typename Format::Stored* from, int64_t stride, int64_t n, float* __restrict to) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Format::Load(from[i]);
  } else if (stride == 0) {
    const float value = Format::Load(from[0]);
    for (int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = Format::Load(from[i * stride]);
  }
}

template <typename Format>
void Store(const float* from, int64_t stride, int64_t n, typename Format::Stored* __restrict to) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = Format::Store(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = Format::Store(from[i]);
  }
}

template <typename T>
void CopyElements(const TensorView& from, Run source, const TensorView& to, Run target) {
  const T* a = At<T>(from, source.offset);
  T* b = At<T>(to, target.offset);
  if (source.stride == 1 && target.stride == 1) {
    std::memcpy(b, a, static_cast<size_t>(source.n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < source.n; ++i) b[i * target.stride] = a[i * source.stride];
}

template <typename T>
void FillElements(T value, const TensorView& to, Run run) {
  T* at = At<T>(to, run.offset);
  for (int64_t i = 0; i < run.n; ++i) at[i * run.stride] = value;
}

bool IsInteger(DType t) { return t == DType::kInt64 || t == DType::kUint64; }

}  // namespace

void LoadFloats(const TensorView& from, Run run, float* to) {
  if (run.n == 0) return;
  WithFormat(from.dtype, [&](auto format) {
    using Format = decltype(format);
    Load<Format>(At<typename Format::Stored>(from, run.offset), run.stride, run.n, to);
  });
}

void StoreFloats(const float* from, const TensorView& to, Run run) {
  WithFormat(to.dtype, [&](auto format) {
    using Format = decltype(format);
    Store<Format>(from, run.stride, run.n, At<typename Format::Stored>(to, run.offset));
  });
}

float LoadFloat(const TensorView& from, int64_t offset) {
  float value = 0;
  LoadFloats(from, {offset, 1, 1}, &value);
  return value;
}

void StoreFloat(float value, const TensorView& to, int64_t offset) {
  StoreFloats(&value, to, {offset, 1, 1});
}

int64_t LoadInt(const TensorView& from, int64_t offset) {
  if (IsInteger(from.dtype)) return *At<int64_t>(from, offset);
  return Int64::Store(LoadFloat(from, offset));
}

void StoreInt(int64_t value, const TensorView& to, int64_t offset) {
  if (IsInteger(to.dtype)) {
    *At<int64_t>(to, offset) = value;
  } else {
    StoreFloat(static_cast<float>(value), to, offset);
  }
}

void CopyRun(const TensorView& from, Run source, const TensorView& to, Run target) {
  if (source.n == 0) return;
  if (from.dtype == to.dtype || (IsInteger(from.dtype) && IsInteger(to.dtype))) {
    switch (SizeOf(from.dtype)) {
      case 1:
        return CopyElements<uint8_t>(from, source, to, target);
      case 2:
        return CopyElements<uint16_t>(from, source, to, target);
      case 4:
        return CopyElements<uint32_t>(from, source, to, target);
      default:
        return CopyElements<uint64_t>(from, source, to, target);
    }
  }
  float buffer[kChunk];
  for (int64_t i = 0; i < source.n; i += kChunk) {
    const int64_t n = source.n - i < kChunk ? source.n - i : kChunk;
    const Run part{source.offset + i * source.stride, source.stride, n};
    StoreFloats(ReadFloats(from, part, buffer), to,
                {target.offset + i * target.stride, target.stride, n});
  }
}

void FillRun(double value, const TensorView& to, Run run) {
  if (IsInteger(to.dtype)) return FillElements(static_cast<int64_t>(value), to, run);
  WithFormat(to.dtype, [&](auto format) {
    FillElements(decltype(format)::Store(static_cast<float>(value)), to, run);
  });
}

}  // namespace foreshard::exec::KERNEL_ISA
