// Fused attention kernels: what each saves beside q, k and v.
#include <cmath>

#include "planner/eager/ops.h"

namespace foreshard::ops {
namespace {

// [B, H, T, D] laid out as [B, T, H, D], as the kernels write their results.
Dims TokenMajor(const Dims& s) { return {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}; }

struct Variant {
  const char* forward;
  const char* backward;
  bool seeds;  // saves the state of the random generator
  DType seed_dtype;
  int seed_words;     // elements of the first of two seed tensors
  int64_t row_round;  // rows of the log-sum-exp are rounded to this
};

const Variant& Get(AttentionKernel kernel) {
  static const Variant kFlashCuda = {
      "flash_attention", "flash_attention_backward", true, DType::kUint64, 2, 1};
  static const Variant kFlashCpu = {
      "flash_attention_cpu", "flash_attention_cpu_backward", false, DType::kInt64, 0, 1};
  static const Variant kFlash = {"attention", "attention_backward", false, DType::kInt64, 0, 1};
  static const Variant kEfficient = {
      "efficient_attention", "efficient_attention_backward", true, DType::kInt64, 1, 32};
  switch (kernel) {
    case AttentionKernel::kFlashCuda:
      return kFlashCuda;
    case AttentionKernel::kFlashCpu:
      return kFlashCpu;
    case AttentionKernel::kFlash:
      return kFlash;
    case AttentionKernel::kEfficient:
      return kEfficient;
  }
  return kFlash;
}

// saved: q, k, v, out, logsumexp[, seed, offset]
void AttentionBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const auto& s = node.saved;
  const Variant& variant = Get(static_cast<AttentionKernel>(node.number));
  const auto like = [&](const Tensor& x) {
    return e.Empty(x.dtype(), x.shape(), TokenMajor(x.shape()));
  };
  Tensor dq = like(s[0]);
  Tensor dk = like(s[1]);
  Tensor dv = like(s[2]);
  const AttentionAttr attr{node.flag, node.scalar, node.dropout};
  if (variant.seeds) {
    e.Launch(variant.backward, {&in[0], &s[0], &s[1], &s[2], &s[3], &s[4], &s[5], &s[6]},
             {&dq, &dk, &dv}, attr);
  } else {
    e.Launch(variant.backward, {&in[0], &s[0], &s[1], &s[2], &s[3], &s[4]}, {&dq, &dk, &dv}, attr);
  }
  if (node.dropout > 0) e.Draw(node.random);
  out[0] = std::move(dq);
  out[1] = std::move(dk);
  out[2] = std::move(dv);
}

}  // namespace

Tensor FusedAttention(Eager& e, AttentionKernel kernel, const Tensor& q, const Tensor& k,
                      const Tensor& v, bool causal, double dropout) {
  const Variant& variant = Get(kernel);
  const Dims s = q.shape();
  Tensor out = e.Empty(q.dtype(), s, TokenMajor(s));
  Tensor logsumexp = e.Empty(DType::kFp32, {s[0], s[1], RoundUp(s[2], variant.row_round)});
  const AttentionAttr attr{causal, 1 / std::sqrt(static_cast<double>(s[3])), dropout};
  std::vector<Tensor> saved = {q, k, v, out, logsumexp};
  if (variant.seeds) {
    const Dims words = variant.seed_words == 1 ? Dims{} : Dims{variant.seed_words};
    Tensor seed = e.Empty(variant.seed_dtype, words);
    Tensor offset = e.Empty(variant.seed_dtype, {});
    e.Launch(variant.forward, {&q, &k, &v}, {&out, &logsumexp, &seed, &offset}, attr);
    saved.push_back(seed);
    saved.push_back(offset);
  } else {
    e.Launch(variant.forward, {&q, &k, &v}, {&out, &logsumexp}, attr);
  }
  const int random = dropout > 0 ? e.Draw() : -1;
  if (Node* node = e.Record(AttentionBackward, {&q, &k, &v}, {&out})) {
    e.Save(*node, std::move(saved));
    node->number = static_cast<int64_t>(kernel);
    node->scalar = attr.scale;
    node->dropout = dropout;
    node->random = random;
    node->flag = causal;
  }
  return out;
}

}  // namespace foreshard::ops
