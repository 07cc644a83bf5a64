// Losses over rows of class scores, averaged over the rows whose label counts. Labels of -100 do
// not, as PyTorch's default has it; without any that does the mean is not a number.
#include <cmath>

#include "exec/cpu/kernel_check.h"
#include "exec/cpu/kernels/copies.h"
#include "exec/cpu/kernels/groups.h"
#include "exec/cpu/kernels/log_sum_exp.h"

namespace foreshard::exec::KERNEL_ISA {
namespace {

constexpr int64_t kIgnored = -100;

class Labels {
 public:
  Labels(const TensorView& t, int64_t classes) : t_(t), classes_(classes) {}
  int64_t count() const { return t_.shape[0]; }
  // The class of a row, or kIgnored.
  int64_t operator[](int64_t row) const {
    const int64_t label = LoadInt(t_, row * t_.strides[0]);
    if (label != kIgnored) CheckIndex("label", label, classes_);
    return label;
  }
  double Counting() const {
    int64_t n = 0;
    for (int64_t row = 0; row < count(); ++row) n += (*this)[row] != kIgnored ? 1 : 0;
    return static_cast<double>(n);
  }

 private:
  const TensorView& t_;
  const int64_t classes_;
};

// Element [row, label] of a matrix.
int64_t OffsetOf(const TensorView& t, int64_t row, int64_t label) {
  return row * t.strides[0] + label * t.strides[1];
}

// log probabilities, labels -> loss, rows that count
void NllLoss(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const Labels labels(call.in[1], x.shape[1]);
  double sum = 0;
  for (int64_t row = 0; row < labels.count(); ++row) {
    const int64_t label = labels[row];
    if (label == kIgnored) continue;
    sum -= static_cast<double>(LoadFloat(x, OffsetOf(x, row, label)));
  }
  const double rows = labels.Counting();
  StoreFloat(static_cast<float>(sum / rows), call.out[0], 0);
  StoreFloat(static_cast<float>(rows), call.out[1], 0);
}

// gradient, labels, rows that count -> gradient of the log probabilities
void NllLossBackward(const KernelCall& call) {
  const TensorView& out = call.out[0];
  const Labels labels(call.in[1], out.shape[1]);
  const float share = -LoadFloat(call.in[0], 0) / LoadFloat(call.in[2], 0);
  FillTensor(0, out);
  for (int64_t row = 0; row < labels.count(); ++row) {
    const int64_t label = labels[row];
    if (label != kIgnored) StoreFloat(share, out, OffsetOf(out, row, label));
  }
}

// logits, labels -> loss, log of the sum of exponentials of each row
void CrossEntropy(const KernelCall& call) {
  const TensorView& logits = call.in[0];
  const TensorView& log_sums = call.out[1];
  RowReader x(logits);
  const Labels labels(call.in[1], logits.shape[1]);
  double sum = 0;
  for (int64_t row = 0; row < labels.count(); ++row) {
    const ExpSum total = SumExponentials(x, row);
    const double log_sum = static_cast<double>(total.max) + std::log(total.sum);
    StoreFloat(static_cast<float>(log_sum), log_sums, row * log_sums.strides[0]);
    const int64_t label = labels[row];
    if (label == kIgnored) continue;
    sum += log_sum - static_cast<double>(LoadFloat(logits, OffsetOf(logits, row, label)));
  }
  StoreFloat(static_cast<float>(sum / labels.Counting()), call.out[0], 0);
}

// gradient, logits, labels, log sums -> (softmax - one at the label) * gradient / rows that count
void CrossEntropyBackward(const KernelCall& call) {
  const TensorView& logits = call.in[1];
  const TensorView& log_sums = call.in[3];
  RowReader x(logits);
  RowWriter out(call.out[0]);
  const Labels labels(call.in[2], logits.shape[1]);
  const auto share =
      static_cast<float>(static_cast<double>(LoadFloat(call.in[0], 0)) / labels.Counting());
  for (int64_t row = 0; row < labels.count(); ++row) {
    const float log_sum = LoadFloat(log_sums, row * log_sums.strides[0]);
    const int64_t label = labels[row];
    const float scale = label == kIgnored ? 0 : share;
    ForEachPart(x.rows().length(), [&](int64_t start, int64_t n) {
      const float* in = x.Read(row, start, n);
      out.Write(row, start, n, [&](float* __restrict to) {
        for (int64_t i = 0; i < n; ++i) to[i] = Exp(in[i] - log_sum) * scale;
        if (label >= start && label < start + n) {
          to[label - start] = (Exp(in[label - start] - log_sum) - 1) * scale;
        }
      });
    });
  }
}

constexpr NamedKernel kRows[] = {
    {"nll_loss", NllLoss},
    {"nll_loss_backward", NllLossBackward},
    {"cross_entropy", CrossEntropy},
    {"cross_entropy_backward", CrossEntropyBackward},
};

}  // namespace

std::span<const NamedKernel> LossKernels() { return kRows; }

}  // namespace foreshard::exec::KERNEL_ISA
