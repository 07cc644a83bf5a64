// Softmax and its logarithm over the last dimension.
#include <cmath>
#include <limits>

#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/log_sum_exp.h"
#include "exec/cpu/kernels/rows.h"
#include "exec/cpu/kernels/vector_math.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

// A row without any finite number, as of a query that sees no key, gives zeros.
void Softmax(const KernelCall& call) {
  RowReader x(call.in[0]);
  RowWriter y(call.out[0]);
  const int64_t length = x.rows().length();
  for (int64_t row = 0; row < x.rows().count(); ++row) {
    const ExpSum total = SumExponentials(x, row);
    const bool empty = total.max == -std::numeric_limits<float>::infinity();
    const float max = empty ? 0 : total.max;
    const float inverse = empty ? 0 : static_cast<float>(1 / total.sum);
    ForEachPart(length, [&](int64_t start, int64_t n) {
      const float* in = x.Read(row, start, n);
      y.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = Exp(in[i] - max) * inverse;
      });
    });
  }
}

// gradient, y -> y * (gradient - sum(gradient * y))
void SoftmaxBackward(const KernelCall& call) {
  RowReader g(call.in[0]);
  RowReader y(call.in[1]);
  RowWriter out(call.out[0]);
  const int64_t length = y.rows().length();
  for (int64_t row = 0; row < y.rows().count(); ++row) {
    double sum = 0;
    ForEachPart(length, [&](int64_t start, int64_t n) {
      sum += static_cast<double>(Dot(g.Read(row, start, n), y.Read(row, start, n), n));
    });
    const auto mean = static_cast<float>(sum);
    ForEachPart(length, [&](int64_t start, int64_t n) {
      const float* gradient = g.Read(row, start, n);
      const float* probability = y.Read(row, start, n);
      out.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = probability[i] * (gradient[i] - mean);
      });
    });
  }
}

void LogSoftmax(const KernelCall& call) {
  RowReader x(call.in[0]);
  RowWriter y(call.out[0]);
  const int64_t length = x.rows().length();
  for (int64_t row = 0; row < x.rows().count(); ++row) {
    const ExpSum total = SumExponentials(x, row);
    const auto log_sum = static_cast<float>(std::log(total.sum));
    ForEachPart(length, [&](int64_t start, int64_t n) {
      const float* in = x.Read(row, start, n);
      y.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = (in[i] - total.max) - log_sum;
      });
    });
  }
}

// gradient, y = log probabilities -> gradient - e^y * sum(gradient)
void LogSoftmaxBackward(const KernelCall& call) {
  RowReader g(call.in[0]);
  RowReader y(call.in[1]);
  RowWriter out(call.out[0]);
  const int64_t length = y.rows().length();
  for (int64_t row = 0; row < y.rows().count(); ++row) {
    double sum = 0;
    ForEachPart(length, [&](int64_t start, int64_t n) {
      sum += static_cast<double>(Sum(g.Read(row, start, n), n));
    });
    const auto total = static_cast<float>(sum);
    ForEachPart(length, [&](int64_t start, int64_t n) {
      const float* gradient = g.Read(row, start, n);
      const float* log_probability = y.Read(row, start, n);
      out.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = gradient[i] - Exp(log_probability[i]) * total;
      });
    });
  }
}

constexpr NamedKernel kRows[] = {
    {"softmax", Softmax},
    {"softmax_backward", SoftmaxBackward},
    {"log_softmax", LogSoftmax},
    {"log_softmax_backward", LogSoftmaxBackward},
};

}  // namespace

std::span<const NamedKernel> SoftmaxKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
