// Kernels that work block by block, on tensors of more than one block in every direction, against
// loops in double precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/exec/typed_tensor.h"

namespace foreshard::exec {
namespace {

double Value(float x) { return x; }
double Value(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

class KernelBlocks : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitCpuKernels(); }
};

// What an fp32 sum of k products of numbers around 1 may be off by: partial sums are around
// sqrt(k), each addition is off by 2^-25 of that or so, and k such errors add up to sqrt(k) times
// one. Five times that happens to none of a hundred thousand elements.
double SumError(int64_t k) { return 5 * 0x1p-25 * static_cast<double>(k); }

// `rounding`: relative, of the result.
template <typename T>
void TestProduct(TypedTensor<T> a, TypedTensor<T> b, TypedTensor<T> c, double rounding) {
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  RunKernel("mm", {a.view(), b.view()}, {c.view()});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += Value(a.values[i * k + l]) * Value(b.values[l * n + j]);
      const double allowed = SumError(k) + rounding * std::fabs(sum);
      ASSERT_NEAR(Value(c.values[i * n + j]), sum, allowed) << i << ", " << j;
    }
  }
}

TEST_F(KernelBlocks, ProductsOfBf16AreRoundedOnce) {
  // Tiles are 256 wide and 192 deep.
  TestProduct(RandomBf16({270, 400}, 1), RandomBf16({400, 300}, 2),
              TypedTensor<uint16_t>({270, 300}, DType::kBf16), 0x1p-8);
}

TEST_F(KernelBlocks, ProductsOfFp32) {
  TestProduct(RandomTensor({70, 500}, 1), RandomTensor({500, 90}, 2), TypedTensor<float>({70, 90}),
              0);
}

TEST_F(KernelBlocks, ProductsOfStridedOperandsAreThoseOfTheirCopies) {
  TypedTensor<float> wide = RandomTensor({270, 800}, 1), dense({270, 400}),
                     b = RandomTensor({400, 300}, 2);
  TensorView every_other = wide.view();
  every_other.shape[1] = 400;
  every_other.strides[1] = 2;
  RunKernel("copy", {every_other}, {dense.view()});
  TypedTensor<float> c({270, 300}), d({270, 300});
  RunKernel("mm", {every_other, b.view()}, {c.view()});
  RunKernel("mm", {dense.view(), b.view()}, {d.view()});
  for (size_t i = 0; i < c.values.size(); ++i)
    ASSERT_NEAR(c.values[i], d.values[i], 2 * SumError(400));
}

// Sums of small integers are exact in fp32 and, up to 256, in bf16.
TEST_F(KernelBlocks, EmbeddingGradientsOfBf16AreSummedBeforeTheyAreRounded) {
  // Parts of the result are 1024 rows and 128 columns.
  constexpr int64_t kRows = 2100, kColumns = 300, kCount = 700;
  TypedTensor<int64_t> indices({kCount}, DType::kInt64);
  TypedTensor<float> g({kCount, kColumns}), exact({kRows, kColumns});
  TypedTensor<uint16_t> half({kCount, kColumns}, DType::kBf16);
  TypedTensor<uint16_t> sums({kRows, kColumns}, DType::kBf16);
  for (int64_t i = 0; i < kCount; ++i) {
    // Some rows get many, most none.
    indices.values[i] = i % 7 == 0 ? 2099 : static_cast<int64_t>(RandomBits(1, i) % kRows);
    for (int64_t j = 0; j < kColumns; ++j) {
      const auto value = static_cast<float>(RandomBits(2, i * kColumns + j) % 3);
      g.values[i * kColumns + j] = value;
      exact.values[indices.values[i] * kColumns + j] += value;
    }
  }
  RunKernel("cast", {g.view()}, {half.view()});
  RunKernel("embedding_backward", {half.view(), indices.view()}, {sums.view()});
  for (size_t i = 0; i < sums.values.size(); ++i) {
    ASSERT_EQ(Value(sums.values[i]), Value(exact.values[i])) << i;
  }
  // In fp32, added up in place.
  TypedTensor<float> in_place({kRows, kColumns});
  RunKernel("embedding_backward", {g.view(), indices.view()}, {in_place.view()});
  EXPECT_EQ(in_place.values, exact.values);
}

TEST_F(KernelBlocks, SumsOverManyRowsOfColumnsAndOfRuns) {
  // Integers again: any order gives the same, and nothing is lost.
  TypedTensor<float> x({1300, 1100}), columns({1, 1100}), rows({1300, 1}), all({});
  std::vector<double> by_column(1100), by_row(1300);
  double total = 0;
  for (int64_t i = 0; i < 1300; ++i) {
    for (int64_t j = 0; j < 1100; ++j) {
      const auto value = static_cast<float>(RandomBits(3, i * 1100 + j) % 5);
      x.values[i * 1100 + j] = value;
      by_column[j] += value;
      by_row[i] += value;
      total += value;
    }
  }
  RunKernel("sum_to", {x.view()}, {columns.view()});
  RunKernel("sum_to", {x.view()}, {rows.view()});
  RunKernel("sum_all", {x.view()}, {all.view()});
  for (int64_t j = 0; j < 1100; ++j) ASSERT_EQ(columns.values[j], by_column[j]);
  for (int64_t i = 0; i < 1300; ++i) ASSERT_EQ(rows.values[i], by_row[i]);
  EXPECT_EQ(all.values[0], total);
}

struct AttentionSizes {
  int64_t heads, groups, queries, keys, size;
  bool causal;
};

// Softmax attention and its backward for one batch entry.
class NaiveAttention {
 public:
  NaiveAttention(const AttentionSizes& s, const std::vector<float>& q, const std::vector<float>& k,
                 const std::vector<float>& v, const std::vector<float>& g)
      : s_(s), q_(q), k_(k), v_(v), g_(g) {
    const int64_t query_elements = s.heads * s.queries * s.size;
    const int64_t key_elements = s.groups * s.keys * s.size;
    out.resize(query_elements);
    dq.resize(query_elements);
    dk.resize(key_elements);
    dv.resize(key_elements);
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.queries; ++t) Query(h, t);
    }
  }
  std::vector<double> out, dq, dk, dv;

 private:
  double Dot(const std::vector<float>& a, int64_t i, const std::vector<float>& b, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < s_.size; ++d) sum += double{a[i + d]} * double{b[j + d]};
    return sum;
  }

  void Query(int64_t h, int64_t t) {
    const double scale = 1 / std::sqrt(static_cast<double>(s_.size));
    const int64_t seen = s_.causal ? std::min(s_.keys, t + 1) : s_.keys;
    const int64_t row = (h * s_.queries + t) * s_.size;
    const int64_t first = h / (s_.heads / s_.groups) * s_.keys * s_.size;
    std::vector<double> p(seen), slope(seen);
    double sum = 0, mean = 0;
    for (int64_t c = 0; c < seen; ++c) {
      p[c] = std::exp(scale * Dot(q_, row, k_, first + c * s_.size));
      sum += p[c];
    }
    for (int64_t c = 0; c < seen; ++c) {
      p[c] /= sum;
      slope[c] = Dot(g_, row, v_, first + c * s_.size);
      mean += p[c] * slope[c];
    }
    for (int64_t c = 0; c < seen; ++c) {
      const double ds = scale * p[c] * (slope[c] - mean);
      for (int64_t d = 0; d < s_.size; ++d) {
        const int64_t at = first + c * s_.size + d;
        out[row + d] += p[c] * v_[at];
        dq[row + d] += ds * k_[at];
        dk[at] += ds * q_[row + d];
        dv[at] += p[c] * g_[row + d];
      }
    }
  }

  const AttentionSizes s_;
  const std::vector<float>&q_, &k_, &v_, &g_;
};

void ExpectNear(const std::vector<float>& found, const std::vector<double>& expected,
                const char* what) {
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 3e-6 * largest) << what << ", element " << i;
  }
}

void TestAttention(const AttentionSizes& s) {
  TypedTensor<float> q = RandomTensor({1, s.heads, s.queries, s.size}, 1);
  TypedTensor<float> k = RandomTensor({1, s.groups, s.keys, s.size}, 2);
  TypedTensor<float> v = RandomTensor({1, s.groups, s.keys, s.size}, 3);
  TypedTensor<float> g = RandomTensor({1, s.heads, s.queries, s.size}, 4);
  TypedTensor<float> out(q.shape), dq(q.shape), dk(k.shape), dv(v.shape);
  TypedTensor<float> log_sums({1, s.heads, s.queries});
  KernelAttributes a;
  a.attention = {s.causal, 1 / std::sqrt(static_cast<double>(s.size)), 0};
  RunKernel("attention", {q.view(), k.view(), v.view()}, {out.view(), log_sums.view()}, a);
  RunKernel("attention_backward",
            {g.view(), q.view(), k.view(), v.view(), out.view(), log_sums.view()},
            {dq.view(), dk.view(), dv.view()}, a);
  const NaiveAttention naive(s, q.values, k.values, v.values, g.values);
  ExpectNear(out.values, naive.out, "out");
  ExpectNear(dq.values, naive.dq, "dq");
  ExpectNear(dk.values, naive.dk, "dk");
  ExpectNear(dv.values, naive.dv, "dv");
}

TEST_F(KernelBlocks, AttentionOverSeveralBlocksOfQueriesAndKeys) {
  // Blocks have 64 queries and 256 keys.
  for (const bool causal : {false, true}) {
    TestAttention({2, 1, 300, 300, 16, causal});
    TestAttention({1, 1, 130, 600, 8, causal});
    TestAttention({2, 2, 600, 130, 8, causal});
    TestAttention({4, 2, 200, 256, 8, causal});  // one block of keys
  }
}

TEST_F(KernelBlocks, AttentionOfLargeHeadsHasSmallerBlocks) {
  // 32768 / 700 = 46 queries and keys.
  for (const bool causal : {false, true}) TestAttention({2, 1, 100, 100, 700, causal});
  // 109 keys but 64 queries, so that blocks do not begin together.
  TestAttention({1, 1, 100, 300, 300, true});
}

}  // namespace
}  // namespace foreshard::exec
