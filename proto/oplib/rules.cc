#include "proto/oplib/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "proto/base/dtype.h"

namespace foreshard::oplib {
namespace {

using Type = pb::TensorType;

std::string Text(const Type& t) {
  return fmt::format("[{}]", fmt::join(t.shape().begin(), t.shape().end(), ", "));
}

bool SameShape(const Type& a, const Type& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

Status Want(bool condition, const std::string& what) {
  return condition ? OkStatus() : InvalidPlan(what);
}

Status WantShape(const Type& found, const Type& expected, const char* what) {
  return Want(SameShape(found, expected),
              fmt::format("{} has shape {}, expected {}", what, Text(found), Text(expected)));
}

Status WantRank(const Type& t, int rank, const char* what) {
  return Want(t.shape_size() == rank,
              fmt::format("{} has shape {}, expected {} dimensions", what, Text(t), rank));
}

int64_t Last(const Type& t) { return t.shape(t.shape_size() - 1); }

Status WantVector(const Type& t, int64_t size, const char* what) {
  return Want(t.shape_size() == 1 && t.shape(0) == size,
              fmt::format("{} has shape {}, expected [{}]", what, Text(t), size));
}

// Row statistics: the shape of `x` with a last dimension of 1.
Status WantStatistics(const Type& t, const Type& x, const char* what) {
  Type expected = x;
  expected.set_shape(expected.shape_size() - 1, 1);
  return WantShape(t, expected, what);
}

// True when `from` broadcasts to `to` as numpy does.
bool Broadcasts(const Type& from, const Type& to) {
  const int shift = to.shape_size() - from.shape_size();
  if (shift < 0) return false;
  for (int i = 0; i < from.shape_size(); ++i) {
    if (from.shape(i) != 1 && from.shape(i) != to.shape(i + shift)) return false;
  }
  return true;
}

}  // namespace

int64_t NumelOf(const Type& t) {
  constexpr int64_t kLimit = std::numeric_limits<int64_t>::max() / 16;
  int64_t n = 1;
  for (int64_t d : t.shape()) {
    if (d <= 0) return 0;
    if (n > kLimit / d) return kLimit;
    n *= d;
  }
  return n;
}

Status Elementwise(const pb::Kernel& k) {
  for (const Type& t : k.operands()) {
    RETURN_IF_ERROR(
        Want(Broadcasts(t, k.results(0)),
             fmt::format("operand {} does not broadcast to {}", Text(t), Text(k.results(0)))));
  }
  return OkStatus();
}

Status RowWise(const pb::Kernel& k) {
  for (const Type& t : k.operands()) RETURN_IF_ERROR(WantShape(t, k.results(0), "operand"));
  return OkStatus();
}

Status InPlaceAdd(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantShape(k.operands(1), k.operands(0), "second operand"));
  return WantShape(k.results(0), k.operands(0), "result");
}

Status Fill(const pb::Kernel&) { return OkStatus(); }

Status Dropout(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.attributes_case() == pb::Kernel::kScalar, "no probability"));
  RETURN_IF_ERROR(WantShape(k.results(0), k.operands(0), "result"));
  return WantShape(k.results(1), k.operands(0), "mask");
}

Status Copies(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.operands(0).dtype() == k.results(0).dtype(), "a copy changes the dtype"));
  return WantShape(k.results(0), k.operands(0), "result");
}

Status CastRule(const pb::Kernel& k) { return WantShape(k.results(0), k.operands(0), "result"); }

Status Scalar(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.attributes_case() == pb::Kernel::kScalar, "no scalar attribute"));
  return WantShape(k.results(0), k.operands(0), "result");
}

Status DivExpand(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.attributes_case() == pb::Kernel::kScalar, "no scalar attribute"));
  return Want(Broadcasts(k.operands(0), k.results(0)), "operand does not broadcast to the result");
}

Status MeanLast(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.operands(0).shape_size() > 0, "operand has no dimension"));
  return WantStatistics(k.results(0), k.operands(0), "result");
}

Status SumAll(const pb::Kernel& k) { return WantRank(k.results(0), 0, "result"); }

Status SumTo(const pb::Kernel& k) {
  const bool rank = k.results(0).shape_size() == k.operands(0).shape_size();
  return Want(rank && Broadcasts(k.results(0), k.operands(0)),
              fmt::format("{} is no sum of {}", Text(k.results(0)), Text(k.operands(0))));
}

Status SumDim(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.attributes_case() == pb::Kernel::kDim && k.dim() >= 0 &&
                           k.dim() < k.operands(0).shape_size(),
                       "no dimension to sum over"));
  Type expected = k.operands(0);
  expected.set_shape(static_cast<int>(k.dim()), 1);
  return WantShape(k.results(0), expected, "result");
}

Status Cat(const pb::Kernel& k) {
  int64_t total = 0;
  for (const Type& t : k.operands()) {
    RETURN_IF_ERROR(Want(t.shape_size() > 0, "operand has no dimension"));
    total += Last(t);
    Type rest = t;
    rest.set_shape(rest.shape_size() - 1, Last(k.operands(0)));
    RETURN_IF_ERROR(WantShape(rest, k.operands(0), "operand"));
  }
  Type expected = k.operands(0);
  expected.set_shape(expected.shape_size() - 1, total);
  return WantShape(k.results(0), expected, "result");
}

Status PadLast(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.attributes_case() == pb::Kernel::kScalar, "no scalar attribute"));
  RETURN_IF_ERROR(Want(k.operands(0).shape_size() > 0, "operand has no dimension"));
  RETURN_IF_ERROR(Want(k.operands(0).dtype() == k.results(0).dtype(), "padding changes the dtype"));
  Type expected = k.operands(0);
  if (k.results(0).shape_size() == expected.shape_size()) {
    expected.set_shape(expected.shape_size() - 1, std::max(Last(k.results(0)), Last(expected)));
  }
  return WantShape(k.results(0), expected, "result");
}

Status SliceBackward(const pb::Kernel& k) {
  const Type& out = k.results(0);
  RETURN_IF_ERROR(Want(k.has_slice(), "no slice attribute"));
  const pb::Slice& s = k.slice();
  RETURN_IF_ERROR(Want(s.dim() >= 0 && s.dim() < out.shape_size(), "slice dimension out of range"));
  const int64_t extent = out.shape(static_cast<int>(s.dim()));
  RETURN_IF_ERROR(Want(
      s.start() >= 0 && s.length() >= 0 && s.start() <= extent && s.length() <= extent - s.start(),
      "slice out of range"));
  Type expected = out;
  expected.set_shape(static_cast<int>(s.dim()), s.length());
  return WantShape(k.operands(0), expected, "operand");
}

Status Mm(const pb::Kernel& k) {
  const Type& a = k.operands(k.operands_size() - 2);
  const Type& b = k.operands(k.operands_size() - 1);
  RETURN_IF_ERROR(WantRank(a, 2, "left factor"));
  RETURN_IF_ERROR(WantRank(b, 2, "right factor"));
  RETURN_IF_ERROR(WantRank(k.results(0), 2, "result"));
  return Want(a.shape(1) == b.shape(0) && k.results(0).shape(0) == a.shape(0) &&
                  k.results(0).shape(1) == b.shape(1),
              fmt::format("{} x {} is not {}", Text(a), Text(b), Text(k.results(0))));
}

Status Addmm(const pb::Kernel& k) {
  RETURN_IF_ERROR(Mm(k));
  return WantVector(k.operands(0), k.results(0).shape(1), "bias");
}

Status Bmm(const pb::Kernel& k) {
  const Type& a = k.operands(0);
  const Type& b = k.operands(1);
  const Type& out = k.results(0);
  for (const Type* t : {&a, &b, &out}) RETURN_IF_ERROR(WantRank(*t, 3, "factor"));
  const bool fits = a.shape(0) == b.shape(0) && a.shape(2) == b.shape(1) &&
                    out.shape(0) == a.shape(0) && out.shape(1) == a.shape(1) &&
                    out.shape(2) == b.shape(2);
  return Want(fits, fmt::format("{} x {} is not {}", Text(a), Text(b), Text(out)));
}

Status Embedding(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.operands(0), 2, "weight"));
  Type expected = k.operands(1);
  expected.add_shape(k.operands(0).shape(1));
  return WantShape(k.results(0), expected, "result");
}

Status EmbeddingBackward(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.results(0), 2, "weight gradient"));
  Type expected = k.operands(1);
  expected.add_shape(k.results(0).shape(1));
  return WantShape(k.operands(0), expected, "gradient");
}

Status LayerNorm(const pb::Kernel& k) {
  const Type& x = k.operands(0);
  RETURN_IF_ERROR(Want(x.shape_size() > 0, "input has no dimension"));
  for (int i = 1; i < k.operands_size(); ++i) {
    RETURN_IF_ERROR(WantVector(k.operands(i), Last(x), "weight"));
  }
  RETURN_IF_ERROR(WantShape(k.results(0), x, "result"));
  for (int i = 1; i < k.results_size(); ++i) {
    RETURN_IF_ERROR(WantStatistics(k.results(i), x, "statistics"));
  }
  return OkStatus();
}

// gradient, x, mean, rstd, weight -> dx, dweight[, dbias]
Status LayerNormBackward(const pb::Kernel& k) {
  const Type& x = k.operands(1);
  RETURN_IF_ERROR(Want(x.shape_size() > 0, "input has no dimension"));
  RETURN_IF_ERROR(WantShape(k.operands(0), x, "gradient"));
  RETURN_IF_ERROR(WantStatistics(k.operands(2), x, "mean"));
  RETURN_IF_ERROR(WantStatistics(k.operands(3), x, "rstd"));
  RETURN_IF_ERROR(WantVector(k.operands(4), Last(x), "weight"));
  RETURN_IF_ERROR(WantShape(k.results(0), x, "input gradient"));
  for (int i = 1; i < k.results_size(); ++i) {
    RETURN_IF_ERROR(WantVector(k.results(i), Last(x), "weight gradient"));
  }
  return OkStatus();
}

Status RmsNorm(const pb::Kernel& k) { return LayerNorm(k); }

// gradient, x, rstd, weight -> dx, dweight
Status RmsNormBackward(const pb::Kernel& k) {
  const Type& x = k.operands(1);
  RETURN_IF_ERROR(Want(x.shape_size() > 0, "input has no dimension"));
  RETURN_IF_ERROR(WantShape(k.operands(0), x, "gradient"));
  RETURN_IF_ERROR(WantStatistics(k.operands(2), x, "rstd"));
  RETURN_IF_ERROR(WantVector(k.operands(3), Last(x), "weight"));
  RETURN_IF_ERROR(WantShape(k.results(0), x, "input gradient"));
  return WantVector(k.results(1), Last(x), "weight gradient");
}

Status Rope(const pb::Kernel& k) {
  const Type& x = k.operands(0);
  RETURN_IF_ERROR(WantRank(x, 4, "input"));
  for (int i = 1; i < 3; ++i) {
    const Type& table = k.operands(i);
    RETURN_IF_ERROR(WantRank(table, 3, "table"));
    RETURN_IF_ERROR(Want(table.shape(1) == x.shape(2) && table.shape(2) == x.shape(3),
                         "table does not cover the positions"));
    RETURN_IF_ERROR(
        Want(table.shape(0) == 1 || table.shape(0) == x.shape(0), "table has another batch size"));
  }
  RETURN_IF_ERROR(Want(x.shape(3) % 2 == 0, "head size is odd"));
  return WantShape(k.results(0), x, "result");
}

Status NllLoss(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.operands(0), 2, "log probabilities"));
  RETURN_IF_ERROR(WantVector(k.operands(1), k.operands(0).shape(0), "labels"));
  RETURN_IF_ERROR(WantRank(k.results(0), 0, "loss"));
  return WantRank(k.results(1), 0, "total weight");
}

// gradient, labels, total weight -> gradient of the log probabilities
Status NllLossBackward(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.operands(0), 0, "gradient"));
  RETURN_IF_ERROR(WantRank(k.operands(2), 0, "total weight"));
  RETURN_IF_ERROR(WantRank(k.results(0), 2, "result"));
  return WantVector(k.operands(1), k.results(0).shape(0), "labels");
}

Status CrossEntropy(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.operands(0), 2, "logits"));
  RETURN_IF_ERROR(WantVector(k.operands(1), k.operands(0).shape(0), "labels"));
  RETURN_IF_ERROR(WantRank(k.results(0), 0, "loss"));
  return WantVector(k.results(1), k.operands(0).shape(0), "logsumexp");
}

// gradient, logits, labels, logsumexp -> gradient of the logits
Status CrossEntropyBackward(const pb::Kernel& k) {
  RETURN_IF_ERROR(WantRank(k.operands(0), 0, "gradient"));
  RETURN_IF_ERROR(WantRank(k.operands(1), 2, "logits"));
  RETURN_IF_ERROR(WantVector(k.operands(2), k.operands(1).shape(0), "labels"));
  RETURN_IF_ERROR(WantVector(k.operands(3), k.operands(1).shape(0), "logsumexp"));
  return WantShape(k.results(0), k.operands(1), "result");
}

namespace {

Status QueryKeyValue(const Type& q, const Type& key, const Type& v) {
  RETURN_IF_ERROR(WantRank(q, 4, "query"));
  RETURN_IF_ERROR(WantRank(key, 4, "key"));
  RETURN_IF_ERROR(WantShape(v, key, "value"));
  const bool fits = q.shape(0) == key.shape(0) && q.shape(3) == key.shape(3) && key.shape(1) > 0 &&
                    q.shape(1) % key.shape(1) == 0;
  return Want(fits, fmt::format("query {} does not fit key {}", Text(q), Text(key)));
}

// One number for each head and row; kernels may round the rows up.
Status WantLogSumExp(const Type& t, const Type& q) {
  RETURN_IF_ERROR(WantRank(t, 3, "logsumexp"));
  const bool fits =
      t.shape(0) == q.shape(0) && t.shape(1) == q.shape(1) && t.shape(2) >= q.shape(2);
  return Want(fits, fmt::format("logsumexp {} does not fit query {}", Text(t), Text(q)));
}

}  // namespace

Status Attention(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.has_attention(), "no attention attribute"));
  RETURN_IF_ERROR(QueryKeyValue(k.operands(0), k.operands(1), k.operands(2)));
  RETURN_IF_ERROR(WantShape(k.results(0), k.operands(0), "result"));
  return WantLogSumExp(k.results(1), k.operands(0));
}

// gradient, q, k, v, out, logsumexp[, seed, offset] -> dq, dk, dv
Status AttentionBackward(const pb::Kernel& k) {
  RETURN_IF_ERROR(Want(k.has_attention(), "no attention attribute"));
  RETURN_IF_ERROR(QueryKeyValue(k.operands(1), k.operands(2), k.operands(3)));
  RETURN_IF_ERROR(WantShape(k.operands(0), k.operands(1), "gradient"));
  RETURN_IF_ERROR(WantShape(k.operands(4), k.operands(1), "output"));
  RETURN_IF_ERROR(WantLogSumExp(k.operands(5), k.operands(1)));
  for (int i = 0; i < 3; ++i) {
    RETURN_IF_ERROR(WantShape(k.results(i), k.operands(i + 1), "gradient of an input"));
  }
  return OkStatus();
}

double NoFlops(const pb::Kernel&) { return 0; }
double OnePerResult(const pb::Kernel& k) { return static_cast<double>(NumelOf(k.results(0))); }
double OnePerOperand(const pb::Kernel& k) { return static_cast<double>(NumelOf(k.operands(0))); }

double MatmulFlops(const pb::Kernel& k) {
  const Type& left = k.operands(k.operands_size() - 2);
  return 2.0 * static_cast<double>(NumelOf(k.results(0))) * static_cast<double>(Last(left));
}

namespace {
double TwoProducts(const Type& q, const Type& key, bool causal) {
  return 4.0 * static_cast<double>(NumelOf(q)) * static_cast<double>(key.shape(2)) *
         (causal ? 0.5 : 1.0);
}
}  // namespace

double AttentionFlops(const pb::Kernel& k) {
  return TwoProducts(k.operands(0), k.operands(1), k.attention().causal());
}
double AttentionBackwardFlops(const pb::Kernel& k) {
  return 2.5 * TwoProducts(k.operands(1), k.operands(2), k.attention().causal());
}

int64_t NoScratch(const pb::Kernel&) { return 0; }

int64_t FlashBackwardScratch(const pb::Kernel& k) {
  const auto round_up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const Type& q = k.operands(1);
  const Type& key = k.operands(2);
  const int64_t heads = q.shape(0) * q.shape(1);
  const int64_t rows = round_up(q.shape(2), 128);
  int64_t bytes = heads * rows * round_up(q.shape(3), 32) * 4 + heads * rows * 4;
  if (key.shape(1) != q.shape(1)) {
    bytes += 2 * heads * key.shape(2) * q.shape(3) * SizeOf(static_cast<DType>(q.dtype()));
  }
  return bytes;
}

}  // namespace foreshard::oplib
