#include "exec/cpu/clip.h"

#include <algorithm>
#include <cmath>

#include "exec/cpu/chunk.h"

namespace foreshard::exec {
namespace {

// As torch.nn.utils.clip_grad_norm_ keeps away from dividing by 0.
constexpr float kEps = 1e-6F;

double SquaredNorm(const GradientSlice& slice, std::byte* gradient) {
  double squares = 0;
  for (int64_t begin = 0; begin < slice.numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, slice.numel - begin);
    Chunk g(gradient, slice.dtype, slice.gradient_from + begin, n);
    squares += SumOfSquares(g.data(), n);
  }
  return squares;
}

void Put(float value, DType dtype, const Block& block, size_t element) {
  ConvertElements(&value, DType::kFp32, block.data + static_cast<int64_t>(element) * SizeOf(dtype),
                  dtype, 1);
}

}  // namespace

double SumOfSquares(const float* x, int64_t n) {
  constexpr int kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += double{x[i + lane]} * double{x[i + lane]};
  }
  for (; i < n; ++i) sums[0] += double{x[i]} * double{x[i]};
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

void Measure(const MeasureGradients& measure, const Launch& launch) {
  const size_t count = measure.slices.size();
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    const GradientSlice& slice = measure.slices[i];
    const double squares = SquaredNorm(slice, launch.in[slice.gradient].data);
    total += squares;
    const auto norm = static_cast<float>(std::sqrt(squares));
    Put(norm, measure.dtype, launch.out[i], 0);
    if (launch.out.size() > count + 1) Put(norm, measure.dtype, launch.out[count], i);
    if (!measure.adds_squares) Put(norm * norm, measure.dtype, launch.out.back(), i);
  }
  if (measure.adds_squares) Put(static_cast<float>(total), measure.dtype, launch.out.back(), 0);
  if (launch.squared_norm != nullptr) *launch.squared_norm += total;
}

void Scale(const ScaleGradients& scale, const Launch& launch) {
  std::vector<float> squares(launch.in.back().bytes / SizeOf(scale.dtype));
  ConvertElements(launch.in.back().data, scale.dtype, squares.data(), DType::kFp32,
                  static_cast<int64_t>(squares.size()));
  double sum = 0;
  for (const float x : squares) sum += x;
  const auto norm = static_cast<float>(std::sqrt(sum));
  const float factor = std::min(1.0F, static_cast<float>(scale.max_norm) / (norm + kEps));
  for (const GradientSlice& slice : scale.slices) {
    for (int64_t begin = 0; begin < slice.numel; begin += kChunk) {
      const int64_t n = std::min(kChunk, slice.numel - begin);
      Chunk g(launch.out[slice.gradient].data, slice.dtype, slice.gradient_from + begin, n);
      for (int64_t i = 0; i < n; ++i) g.data()[i] *= factor;
      g.Store();
    }
  }
}

}  // namespace foreshard::exec
