// Layer norm and RMS norm over the last dimension, and their backwards:
//   y = xhat * weight [+ bias],  xhat = (x - mean) * rstd,  rstd = 1 / sqrt(var + eps)
// with a mean of 0 and the mean square as variance for the RMS norm.
#include <cmath>

#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/rows.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

struct Statistics {
  float mean = 0;
  float rstd = 0;
};

// Sum of (x - mean)^2 over a row.
double SumSquares(RowReader& x, int64_t row, float mean) {
  float centred[kChunk];
  double sum = 0;
  ForEachPart(x.rows().length(), [&](int64_t start, int64_t n) {
    const float* in = x.Read(row, start, n);
    for (int64_t i = 0; i < n; ++i) centred[i] = in[i] - mean;
    sum += static_cast<double>(Dot(centred, centred, n));
  });
  return sum;
}

Statistics StatisticsOf(RowReader& x, int64_t row, double eps, bool centre) {
  const auto length = static_cast<double>(x.rows().length());
  Statistics s;
  if (centre) {
    double sum = 0;
    ForEachPart(x.rows().length(), [&](int64_t start, int64_t n) {
      sum += static_cast<double>(Sum(x.Read(row, start, n), n));
    });
    s.mean = static_cast<float>(sum / length);
  }
  s.rstd = static_cast<float>(1 / std::sqrt(SumSquares(x, row, s.mean) / length + eps));
  return s;
}

// A vector of one element per column, by part.
const float* ReadVector(const TensorView& v, int64_t start, int64_t n, float* buffer) {
  return ReadFloats(v, {start * v.strides[0], v.strides[0], n}, buffer);
}

// x, weight[, bias] -> y[, mean], rstd
void Norm(const KernelCall& call, bool centre) {
  RowReader x(call.in[0]);
  RowWriter y(call.out[0]);
  const TensorView& weight = call.in[1];
  const TensorView* bias = call.in.size() > 2 ? &call.in[2] : nullptr;
  const TensorView& rstd = call.out[call.out.size() - 1];
  const Rows rstd_rows(rstd);
  float buffer_w[kChunk], buffer_b[kChunk];
  for (int64_t row = 0; row < x.rows().count(); ++row) {
    const Statistics s = StatisticsOf(x, row, call.attributes.eps, centre);
    if (centre) StoreFloat(s.mean, call.out[1], Rows(call.out[1]).Start(row));
    StoreFloat(s.rstd, rstd, rstd_rows.Start(row));
    ForEachPart(x.rows().length(), [&](int64_t start, int64_t n) {
      const float* in = x.Read(row, start, n);
      const float* w = ReadVector(weight, start, n, buffer_w);
      const float* b = bias ? ReadVector(*bias, start, n, buffer_b) : nullptr;
      y.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = (in[i] - s.mean) * s.rstd * w[i];
        if (b == nullptr) return;
        for (int64_t i = 0; i < n; ++i) to[i] += b[i];
      });
    });
  }
}

// What the backward reads: the gradient of y, x, and the row statistics.
struct BackwardInput {
  BackwardInput(const TensorView& gradient, const TensorView& input, const TensorView* means,
                const TensorView& scales, const TensorView& weights)
      : g(gradient), x(input), mean(means), rstd(scales), weight(weights) {}

  Statistics At(int64_t row) const {
    return {mean ? LoadFloat(*mean, Rows(*mean).Start(row)) : 0,
            LoadFloat(rstd, Rows(rstd).Start(row))};
  }

  RowReader g, x;
  const TensorView* mean;  // null: 0
  const TensorView& rstd;
  const TensorView& weight;
};

// dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = gradient * weight; without the first
// mean where x is not centred.
void InputGradient(BackwardInput& in, const TensorView& dx) {
  RowWriter out(dx);
  float buffer_w[kChunk], scaled[kChunk], normal[kChunk];
  const int64_t length = in.x.rows().length();
  // Sets the chunks of gw and xhat.
  const auto prepare = [&](int64_t row, const Statistics& s, int64_t start, int64_t n) {
    const float* g = in.g.Read(row, start, n);
    const float* x = in.x.Read(row, start, n);
    const float* w = ReadVector(in.weight, start, n, buffer_w);
    for (int64_t i = 0; i < n; ++i) {
      scaled[i] = g[i] * w[i];
      normal[i] = (x[i] - s.mean) * s.rstd;
    }
  };
  for (int64_t row = 0; row < in.x.rows().count(); ++row) {
    const Statistics s = in.At(row);
    double sum = 0, product = 0;
    ForEachPart(length, [&](int64_t start, int64_t n) {
      prepare(row, s, start, n);
      if (in.mean) sum += static_cast<double>(Sum(scaled, n));
      product += static_cast<double>(Dot(scaled, normal, n));
    });
    const auto mean = static_cast<float>(sum / static_cast<double>(length));
    const auto slope = static_cast<float>(product / static_cast<double>(length));
    ForEachPart(length, [&](int64_t start, int64_t n) {
      if (length > kChunk) prepare(row, s, start, n);  // else they still hold the row
      out.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = s.rstd * (scaled[i] - mean - normal[i] * slope);
      });
    });
  }
}

// Rows that are added up in fp32 before they go into a double.
constexpr int64_t kBlock = 64;

// dweight = sum over rows of gradient * xhat, dbias = sum of gradient.
void WeightGradients(BackwardInput& in, const TensorView& dweight, const TensorView* dbias) {
  float block_w[kChunk], block_b[kChunk];
  double sum_w[kChunk], sum_b[kChunk];
  const int64_t rows = in.x.rows().count();
  ForEachPart(in.x.rows().length(), [&](int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sum_w[i] = sum_b[i] = 0;
    for (int64_t first = 0; first < rows; first += kBlock) {
      for (int64_t i = 0; i < n; ++i) block_w[i] = block_b[i] = 0;
      for (int64_t row = first; row < rows && row < first + kBlock; ++row) {
        const Statistics s = in.At(row);
        const float* g = in.g.Read(row, start, n);
        const float* x = in.x.Read(row, start, n);
        for (int64_t i = 0; i < n; ++i) block_w[i] += g[i] * ((x[i] - s.mean) * s.rstd);
        if (dbias == nullptr) continue;
        for (int64_t i = 0; i < n; ++i) block_b[i] += g[i];
      }
      for (int64_t i = 0; i < n; ++i) {
        sum_w[i] += static_cast<double>(block_w[i]);
        sum_b[i] += static_cast<double>(block_b[i]);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      block_w[i] = static_cast<float>(sum_w[i]);
      block_b[i] = static_cast<float>(sum_b[i]);
    }
    const int64_t stride = dweight.strides[0];
    StoreFloats(block_w, dweight, {start * stride, stride, n});
    if (dbias == nullptr) return;
    StoreFloats(block_b, *dbias, {start * dbias->strides[0], dbias->strides[0], n});
  });
}

void LayerNorm(const KernelCall& call) { Norm(call, true); }
void RmsNorm(const KernelCall& call) { Norm(call, false); }

// gradient, x, mean, rstd, weight -> dx, dweight[, dbias]
void LayerNormBackward(const KernelCall& call) {
  BackwardInput in(call.in[0], call.in[1], &call.in[2], call.in[3], call.in[4]);
  InputGradient(in, call.out[0]);
  WeightGradients(in, call.out[1], call.out.size() > 2 ? &call.out[2] : nullptr);
}

// gradient, x, rstd, weight -> dx, dweight
void RmsNormBackward(const KernelCall& call) {
  BackwardInput in(call.in[0], call.in[1], nullptr, call.in[2], call.in[3]);
  InputGradient(in, call.out[0]);
  WeightGradients(in, call.out[1], nullptr);
}

constexpr NamedKernel kRows[] = {
    {"layer_norm", LayerNorm},
    {"layer_norm_nobias", LayerNorm},
    {"layer_norm_backward", LayerNormBackward},
    {"layer_norm_backward_nobias", LayerNormBackward},
    {"rms_norm", RmsNorm},
    {"rms_norm_backward", RmsNormBackward},
};

}  // namespace

std::span<const NamedKernel> NormKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
