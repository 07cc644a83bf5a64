// Sums over some dimensions. A sum is accumulated in double precision from sums of chunks.
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/reduce.h"
#include "exec/cpu/kernels/walk.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// The operand of a sum taken apart. Fixing one index of `kept` and going through `summed` visits
// what one element of the result adds up.
struct Parts {
  TensorView kept;    // operand with summed dimensions reduced to 1
  TensorView summed;  // operand with kept dimensions reduced to 1
  TensorView result;  // as many dimensions as the operand
};

Parts TakeApart(const TensorView& x, const TensorView& out) {
  Parts parts{x, x, x};
  parts.result.dtype = out.dtype;
  parts.result.data = out.data;
  for (int d = 0; d < x.dims; ++d) {
    const int own = d - (x.dims - out.dims);
    const bool keeps = own >= 0 && out.shape[own] == x.shape[d];
    (keeps ? parts.summed : parts.kept).shape[d] = 1;
    parts.result.shape[d] = keeps ? x.shape[d] : 1;
    parts.result.strides[d] = keeps ? out.strides[own] : 0;
  }
  return parts;
}

// The smallest distance of neighbours along a dimension of more than one element.
int64_t FinestStride(const TensorView& t) {
  int64_t finest = INT64_MAX;
  for (int d = 0; d < t.dims; ++d) {
    if (t.shape[d] > 1 && t.strides[d] < finest) finest = t.strides[d];
  }
  return finest;
}

TensorView At(TensorView t, int64_t offset) {
  t.data = static_cast<char*>(t.data) + offset * SizeOf(t.dtype);
  return t;
}

// Each result's terms lie together: sums them one result after the other.
void SumRuns(const Parts& parts, double divisor) {
  float buffer[kChunk];
  const Walk results(parts.result, {&parts.result, &parts.kept}, Walk::Order::kFast);
  const Walk terms(parts.summed, {&parts.summed}, Walk::Order::kFast);
  results.ForEachRow([&](const int64_t* offsets) {
    for (int64_t i = 0; i < results.length(); ++i) {
      const TensorView from = At(parts.summed, offsets[1] + i * results.stride(1));
      double sum = 0;
      terms.ForEachChunk([&](const Run* runs, int64_t n) {
        sum += static_cast<double>(Sum(ReadFloats(from, runs[0], buffer), n));
      });
      StoreFloat(static_cast<float>(sum / divisor), parts.result,
                 offsets[0] + i * results.stride(0));
    }
  });
}

// Terms that become single rows of a chunk's sum, so that fp32 is enough for so many.
constexpr int64_t kBlock = 64;

// Neighbours belong to different results: adds whole runs up.
void SumColumns(const Parts& parts, double divisor) {
  float buffer[kChunk], block[kChunk];
  double sums[kChunk];
  const Walk results(parts.result, {&parts.result, &parts.kept}, Walk::Order::kFast);
  const Walk terms(parts.summed, {&parts.summed}, Walk::Order::kFast);
  results.ForEachChunk([&](const Run* columns, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sums[i] = block[i] = 0;
    int64_t count = 0;
    const auto flush = [&] {
      for (int64_t i = 0; i < n; ++i) {
        sums[i] += static_cast<double>(block[i]);
        block[i] = 0;
      }
    };
    terms.ForEachRow([&](const int64_t* offsets) {
      for (int64_t j = 0; j < terms.length(); ++j) {
        const TensorView from = At(parts.kept, offsets[0] + j * terms.stride(0));
        const float* row = ReadFloats(from, columns[1], buffer);
        for (int64_t i = 0; i < n; ++i) block[i] += row[i];
        if (++count % kBlock == 0) flush();
      }
    });
    flush();
    for (int64_t i = 0; i < n; ++i) block[i] = static_cast<float>(sums[i] / divisor);
    StoreFloats(block, parts.result, columns[0]);
  });
}

void SumInto(const KernelCall& call, double divisor) {
  const Parts parts = TakeApart(call.in[0], call.out[0]);
  if (FinestStride(parts.summed) < FinestStride(parts.kept)) {
    SumRuns(parts, divisor);
  } else {
    SumColumns(parts, divisor);
  }
}

void SumAny(const KernelCall& call) { SumInto(call, 1); }

void MeanLast(const KernelCall& call) {
  const TensorView& x = call.in[0];
  SumInto(call, static_cast<double>(x.shape[x.dims - 1]));
}

constexpr NamedKernel kRows[] = {
    {"mean_last", MeanLast},
    {"sum_all", SumAny},
    {"sum_to", SumAny},
    {"sum_dim", SumAny},
};

}  // namespace

std::span<const NamedKernel> SumKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
