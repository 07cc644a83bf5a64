// The denominator of a softmax.
#pragma once

#include "exec/cpu/kernels/rows.h"
#include "exec/cpu/kernels/vector_math.h"

namespace foreshard::exec::KERNEL_ISA {

struct ExpSum {
  float max = 0;
  double sum = 0;  // of e^(x - max)
};

inline ExpSum SumExponentials(RowReader& x, int64_t row) {
  const int64_t length = x.rows().length();
  ExpSum total{-std::numeric_limits<float>::infinity(), 0};
  ForEachPart(length, [&](int64_t start, int64_t n) {
    const float max = Max(x.Read(row, start, n), n);
    total.max = max > total.max ? max : total.max;
  });
  float powers[kChunk];
  ForEachPart(length, [&](int64_t start, int64_t n) {
    const float* in = x.Read(row, start, n);
    const float max = total.max;
    for (int64_t i = 0; i < n; ++i) powers[i] = Exp(in[i] - max);
    total.sum += static_cast<double>(Sum(powers, n));
  });
  return total;
}

}  // namespace foreshard::exec::KERNEL_ISA
