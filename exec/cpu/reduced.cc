#include "exec/cpu/reduced.h"

#include <algorithm>

#include "exec/cpu/chunk.h"

namespace foreshard::exec {

void Scale(const ScaleInto& scale, const Launch& launch) {
  const auto factor = static_cast<float>(scale.factor);
  for (int64_t begin = 0; begin < scale.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, scale.numel - begin);
    Chunk from(launch.in[0].data, scale.dtype, scale.from + begin, n);
    Chunk to(launch.out[0].data, scale.dtype, scale.to + begin, n);
    for (int64_t i = 0; i < n; ++i) {
      const float sum = scale.accumulates ? to.data()[i] + from.data()[i] : from.data()[i];
      to.data()[i] = sum * factor;
    }
    to.Store();
  }
}

void Divide(const DivideElements& divide, const Launch& launch) {
  const auto divisor = static_cast<float>(divide.divisor);
  for (int64_t begin = 0; begin < divide.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, divide.numel - begin);
    Chunk x(launch.out[0].data, divide.dtype, begin, n);
    for (int64_t i = 0; i < n; ++i) x.data()[i] /= divisor;
    x.Store();
  }
}

void Add(const AddElements& add, const Launch& launch) {
  const bool into_first = launch.out[0].data == launch.in[0].data;
  std::byte* const other = launch.in[into_first ? 1 : 0].data;
  for (int64_t begin = 0; begin < add.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, add.numel - begin);
    Chunk sum(launch.out[0].data, add.dtype, begin, n);
    Chunk addend(other, add.dtype, begin, n);
    for (int64_t i = 0; i < n; ++i) sum.data()[i] += addend.data()[i];
    sum.Store();
  }
}

}  // namespace foreshard::exec
