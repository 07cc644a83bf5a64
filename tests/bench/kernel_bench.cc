// CPU kernels at the shapes of a small Llama step: batch 4, sequence 256, hidden 512, 8 heads of 64
// and 4 key heads, 1408 intermediate features, 8192 words, fp32. How often each runs in a step of
// four layers stands beside it. GFLOP/s count multiply-add as 2, GB/s every operand and result
// once.
#include <benchmark/benchmark.h>

#include <functional>
#include <vector>

#include "exec/random.h"
#include "tests/exec/typed_tensor.h"

namespace foreshard::exec {
namespace {

using Shape = std::vector<int64_t>;
constexpr int64_t kB = 4, kT = 256, kTokens = kB * kT, kHidden = 512, kHeads = 8, kGroups = 4;
constexpr int64_t kSize = 64, kFeatures = 1408, kWords = 8192;

TypedTensor<float> Ones(const Shape& shape) {
  TypedTensor<float> t(shape);
  // As cheap as constants, and never 0.
  for (size_t i = 0; i < t.values.size(); ++i) t.values[i] = 0.01F * static_cast<float>(i % 97 + 1);
  return t;
}

TypedTensor<int64_t> Indices(const Shape& shape, uint64_t limit) {
  TypedTensor<int64_t> t(shape, DType::kInt64);
  for (size_t i = 0; i < t.values.size(); ++i) {
    t.values[i] = static_cast<int64_t>(RandomBits(1, i) % limit);
  }
  return t;
}

double BytesOf(const std::vector<TensorView>& views) {
  double bytes = 0;
  for (const TensorView& v : views) {
    double elements = 1;
    for (int d = 0; d < v.dims; ++d)
      elements *= v.strides[d] == 0 ? 1 : static_cast<double>(v.shape[d]);
    bytes += elements * static_cast<double>(SizeOf(v.dtype));
  }
  return bytes;
}

void Measure(benchmark::State& state, const char* kernel, const std::vector<TensorView>& in,
             const std::vector<TensorView>& out, double flops, const KernelAttributes& a = {}) {
  InitCpuKernels();
  const CpuKernel run = FindCpuKernel(kernel);
  const KernelCall call{in, out, a, 0};
  for (auto _ : state) run(call);
  using benchmark::Counter;
  const double rate = flops > 0 ? flops : BytesOf(in) + BytesOf(out);
  state.counters[flops > 0 ? "FLOP/s" : "B/s"] =
      Counter(rate, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

TensorView Turned(TensorView t) {
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}

// [B, H, T, D] over memory [B, T, H, D].
TensorView HeadMajor(TensorView t) {
  std::swap(t.shape[1], t.shape[2]);
  std::swap(t.strides[1], t.strides[2]);
  return t;
}

// x [M, K] with a weight stored [N, K].
template <typename T>
void Linear(benchmark::State& state, TypedTensor<T> x, TypedTensor<T> w, TypedTensor<T> y) {
  const double flops = 2.0 * static_cast<double>(x.values.size() * w.shape[0]);
  Measure(state, "mm", {x.view(), Turned(w.view())}, {y.view()}, flops);
}
void BM_LinearUp(benchmark::State& state) {  // 8 times
  Linear(state, Ones({kTokens, kHidden}), Ones({kFeatures, kHidden}), Ones({kTokens, kFeatures}));
}
void BM_LinearHead(benchmark::State& state) {  // once
  Linear(state, Ones({kTokens, kHidden}), Ones({kWords, kHidden}), Ones({kTokens, kWords}));
}
void BM_LinearUpBf16(benchmark::State& state) {
  const auto tensor = [](const Shape& s) { return TypedTensor<uint16_t>(s, DType::kBf16); };
  Linear(state, tensor({kTokens, kHidden}), tensor({kFeatures, kHidden}),
         tensor({kTokens, kFeatures}));
}

void Elementwise(benchmark::State& state, const char* kernel, int operands, int64_t features) {
  auto a = Ones({kTokens, features}), b = Ones({kTokens, features}), c = Ones({kTokens, features});
  std::vector<TensorView> in = {a.view(), b.view()};
  in.resize(operands);
  Measure(state, kernel, in, {c.view()}, 0);
}
void BM_Silu(benchmark::State& state) { Elementwise(state, "silu", 1, kFeatures); }  // 4 times
void BM_SiluBackward(benchmark::State& state) {                                      // 4 times
  Elementwise(state, "silu_backward", 2, kFeatures);
}
void BM_GeluTanh(benchmark::State& state) { Elementwise(state, "gelu_tanh", 1, kFeatures); }
void BM_Mul(benchmark::State& state) { Elementwise(state, "mul", 2, kFeatures); }  // 12 times
void BM_Add(benchmark::State& state) { Elementwise(state, "add", 2, kHidden); }    // 8 times

void BM_RmsNorm(benchmark::State& state) {  // 9 times
  auto x = Ones({kTokens, kHidden}), w = Ones({kHidden}), y = Ones({kTokens, kHidden});
  auto rstd = Ones({kTokens, 1});
  Measure(state, "rms_norm", {x.view(), w.view()}, {y.view(), rstd.view()}, 0);
}
void BM_RmsNormBackward(benchmark::State& state) {  // 9 times
  auto g = Ones({kTokens, kHidden}), x = Ones({kTokens, kHidden}), dx = Ones({kTokens, kHidden});
  auto w = Ones({kHidden}), dw = Ones({kHidden}), rstd = Ones({kTokens, 1});
  Measure(state, "rms_norm_backward", {g.view(), x.view(), rstd.view(), w.view()},
          {dx.view(), dw.view()}, 0);
}
void BM_Rope(benchmark::State& state) {  // 4 times for queries, and backward
  auto x = Ones({kB, kT, kHeads, kSize}), y = Ones({kB, kT, kHeads, kSize});
  auto cos = Ones({1, kT, kSize}), sin = Ones({1, kT, kSize});
  Measure(state, "rope", {HeadMajor(x.view()), cos.view(), sin.view()}, {HeadMajor(y.view())}, 0);
}
void BM_RotateHalf(benchmark::State& state) {  // cat2 of torch-cpu's rope, 4 times for queries
  auto a = Ones({kB, kHeads, kT, kSize / 2}), y = Ones({kB, kHeads, kT, kSize});
  Measure(state, "cat2", {a.view(), a.view()}, {y.view()}, 0);
}
void BM_MulTable(benchmark::State& state) {  // of torch-cpu's rope, 8 times for queries
  auto x = Ones({kB, kT, kHeads, kSize}), y = Ones({kB, kT, kHeads, kSize});
  auto cos = Ones({1, 1, kT, kSize});
  Measure(state, "mul", {HeadMajor(x.view()), cos.view()}, {HeadMajor(y.view())}, 0);
}
void BM_MeanLast(benchmark::State& state) {  // of torch-cpu's norm, 9 times
  auto x = Ones({kTokens, kHidden}), y = Ones({kTokens, 1});
  Measure(state, "mean_last", {x.view()}, {y.view()}, 0);
}
void BM_SumTo(benchmark::State& state) {  // gradient of a norm's weight in torch-cpu, 9 times
  auto x = Ones({kTokens, kHidden}), y = Ones({1, kHidden});
  Measure(state, "sum_to", {x.view()}, {y.view()}, 0);
}
void BM_Embedding(benchmark::State& state) {  // once
  auto w = Ones({kWords, kHidden}), y = Ones({kTokens, kHidden});
  auto indices = Indices({kTokens}, kWords);
  Measure(state, "embedding", {w.view(), indices.view()}, {y.view()}, 0);
}
void BM_EmbeddingBackward(benchmark::State& state) {  // once
  auto g = Ones({kTokens, kHidden}), dw = Ones({kWords, kHidden});
  auto indices = Indices({kTokens}, kWords);
  Measure(state, "embedding_backward", {g.view(), indices.view()}, {dw.view()}, 0);
}
void BM_LogSoftmax(benchmark::State& state) { Elementwise(state, "log_softmax", 1, kWords); }
void BM_LogSoftmaxBackward(benchmark::State& state) {
  Elementwise(state, "log_softmax_backward", 2, kWords);
}
void BM_CrossEntropy(benchmark::State& state) {  // once
  auto x = Ones({kTokens, kWords}), loss = Ones({}), sums = Ones({kTokens});
  auto labels = Indices({kTokens}, kWords);
  Measure(state, "cross_entropy", {x.view(), labels.view()}, {loss.view(), sums.view()}, 0);
}
void BM_CrossEntropyBackward(benchmark::State& state) {  // once
  auto g = Ones({}), x = Ones({kTokens, kWords}), sums = Ones({kTokens});
  auto dx = Ones({kTokens, kWords});
  auto labels = Indices({kTokens}, kWords);
  Measure(state, "cross_entropy_backward", {g.view(), x.view(), labels.view(), sums.view()},
          {dx.view()}, 0);
}

// q k^T and p v, of which a causal mask leaves half.
constexpr double kAttentionFlops = 4.0 * kB * kHeads * kT * kT * kSize / 2;

KernelAttributes Causal() {
  KernelAttributes a;
  a.attention = {true, 0.125, 0};
  return a;
}
void BM_Attention(benchmark::State& state) {  // 4 times
  auto q = Ones({kB, kT, kHeads, kSize}), k = Ones({kB, kT, kGroups, kSize}), out = q;
  auto sums = Ones({kB, kHeads, kT});
  Measure(state, "attention", {HeadMajor(q.view()), HeadMajor(k.view()), HeadMajor(k.view())},
          {HeadMajor(out.view()), sums.view()}, kAttentionFlops, Causal());
}
void BM_AttentionBackward(benchmark::State& state) {  // 4 times
  auto q = Ones({kB, kT, kHeads, kSize}), k = Ones({kB, kT, kGroups, kSize}), out = q, dq = q;
  auto sums = Ones({kB, kHeads, kT}), dk = k, dv = k;
  const TensorView query = HeadMajor(q.view()), key = HeadMajor(k.view());
  Measure(state, "attention_backward", {query, query, key, key, HeadMajor(out.view()), sums.view()},
          {HeadMajor(dq.view()), HeadMajor(dk.view()), HeadMajor(dv.view())}, 2.5 * kAttentionFlops,
          Causal());
}

BENCHMARK(BM_LinearUp)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LinearHead)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LinearUpBf16)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Silu)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SiluBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_GeluTanh)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Mul)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Add)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RmsNorm)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RmsNormBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Rope)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RotateHalf)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MulTable)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MeanLast)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SumTo)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Embedding)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_EmbeddingBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LogSoftmax)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_LogSoftmaxBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_CrossEntropy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_CrossEntropyBackward)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Attention)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_AttentionBackward)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace foreshard::exec
