#include "proto/oplib/oplib.h"

#include <fmt/format.h>

#include <unordered_map>

#include "proto/base/dtype.h"
#include "proto/oplib/rules.h"

namespace foreshard::oplib {
namespace {

constexpr CostClass kMatmul = CostClass::kMatmul;
constexpr CostClass kAttention = CostClass::kAttention;
constexpr CostClass kMemory = CostClass::kMemory;

// name, PyTorch's operator, operands, results, cost class, shape rule, work
constexpr KernelInfo kKernels[] = {
    // elementwise
    {"add", "add.Tensor", 2, 1, kMemory, Elementwise, OnePerResult},
    {"add_", "add_.Tensor", 2, 1, kMemory, InPlaceAdd, OnePerResult},
    {"mul", "mul.Tensor", 2, 1, kMemory, Elementwise, OnePerResult},
    {"add_scalar", "add.Tensor", 1, 1, kMemory, Scalar, OnePerResult},
    {"mul_scalar", "mul.Tensor", 1, 1, kMemory, Scalar, OnePerResult},
    {"pow_scalar", "pow.Tensor_Scalar", 1, 1, kMemory, Scalar, OnePerResult},
    {"neg", "neg", 1, 1, kMemory, Elementwise, OnePerResult},
    {"rsqrt", "rsqrt", 1, 1, kMemory, Elementwise, OnePerResult},
    {"cos", "cos", 1, 1, kMemory, Elementwise, OnePerResult},
    {"sin", "sin", 1, 1, kMemory, Elementwise, OnePerResult},
    {"relu", "relu", 1, 1, kMemory, Elementwise, OnePerResult},
    {"gelu", "gelu", 1, 1, kMemory, Elementwise, OnePerResult},
    {"gelu_tanh", "gelu", 1, 1, kMemory, Elementwise, OnePerResult},
    {"gelu_tanh_backward", "gelu_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"tanh", "tanh", 1, 1, kMemory, Elementwise, OnePerResult},
    {"tanh_backward", "tanh_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"dropout", "native_dropout", 1, 2, kMemory, Dropout, OnePerResult},
    {"dropout_backward", "native_dropout_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"dropout_mask", "bernoulli_", 0, 1, kMemory, Fill, OnePerResult},
    {"silu", "silu", 1, 1, kMemory, Elementwise, OnePerResult},
    {"relu_backward", "threshold_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"gelu_backward", "gelu_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"silu_backward", "silu_backward", 2, 1, kMemory, Elementwise, OnePerResult},
    {"div_expand", "div.Scalar", 1, 1, kMemory, DivExpand, OnePerResult},
    {"mask_to_bias", "where.self", 1, 1, kMemory, CastRule, OnePerResult},
    {"tril", "tril", 1, 1, kMemory, Copies, NoFlops},
    // copies and fills
    {"cast", "_to_copy", 1, 1, kMemory, CastRule, NoFlops},
    {"copy", "clone", 1, 1, kMemory, Copies, NoFlops},
    {"cat2", "cat", 2, 1, kMemory, Cat, NoFlops},
    {"cat3", "cat", 3, 1, kMemory, Cat, NoFlops},
    {"slice_backward", "slice_backward", 1, 1, kMemory, SliceBackward, NoFlops},
    {"arange", "arange", 0, 1, kMemory, Fill, NoFlops},
    {"zeros", "zeros", 0, 1, kMemory, Fill, NoFlops},
    {"ones", "ones", 0, 1, kMemory, Fill, NoFlops},
    {"ones_like", "ones_like", 1, 1, kMemory, CastRule, NoFlops},
    // reductions
    {"mean_last", "mean.dim", 1, 1, kMemory, MeanLast, OnePerOperand},
    {"sum_all", "sum", 1, 1, kMemory, SumAll, OnePerOperand},
    {"sum_to", "sum.dim_IntList", 1, 1, kMemory, SumTo, OnePerOperand},
    {"sum_dim", "sum.dim_IntList", 1, 1, kMemory, SumDim, OnePerOperand},
    {"softmax", "_safe_softmax", 1, 1, kMemory, Elementwise, OnePerResult},
    {"softmax_backward", "_softmax_backward_data", 2, 1, kMemory, Elementwise, OnePerResult},
    {"log_softmax", "_log_softmax", 1, 1, kMemory, Elementwise, OnePerResult},
    {"log_softmax_backward", "_log_softmax_backward_data", 2, 1, kMemory, Elementwise,
     OnePerResult},
    // matrix products
    {"mm", "mm", 2, 1, kMatmul, Mm, MatmulFlops},
    {"addmm", "addmm", 3, 1, kMatmul, Addmm, MatmulFlops},
    {"bmm", "bmm", 2, 1, kMatmul, Bmm, MatmulFlops},
    // modules
    {"embedding", "embedding", 2, 1, kMemory, Embedding, NoFlops},
    {"embedding_backward", "embedding_dense_backward", 2, 1, kMemory, EmbeddingBackward,
     OnePerOperand},
    {"layer_norm", "native_layer_norm", 3, 3, kMemory, LayerNorm, OnePerOperand},
    {"layer_norm_nobias", "native_layer_norm", 2, 3, kMemory, LayerNorm, OnePerOperand},
    {"layer_norm_backward", "native_layer_norm_backward", 5, 3, kMemory, LayerNormBackward,
     OnePerOperand},
    {"layer_norm_backward_nobias", "native_layer_norm_backward", 5, 2, kMemory, LayerNormBackward,
     OnePerOperand},
    {"rms_norm", "_fused_rms_norm", 2, 2, kMemory, RmsNorm, OnePerOperand},
    {"rms_norm_backward", "_fused_rms_norm_backward", 4, 2, kMemory, RmsNormBackward,
     OnePerOperand},
    {"rope", "rope", 3, 1, kMemory, Rope, OnePerResult},
    {"rope_backward", "rope_backward", 3, 1, kMemory, Rope, OnePerResult},
    // losses
    {"nll_loss", "nll_loss_forward", 2, 2, kMemory, NllLoss, NoFlops},
    {"nll_loss_backward", "nll_loss_backward", 3, 1, kMemory, NllLossBackward, NoFlops},
    {"cross_entropy", "cross_entropy", 2, 2, kMemory, CrossEntropy, OnePerOperand},
    {"cross_entropy_backward", "cross_entropy_backward", 4, 1, kMemory, CrossEntropyBackward,
     OnePerResult},
    // fused attention
    {"attention", "attention", 3, 2, kAttention, Attention, AttentionFlops},
    {"attention_backward", "attention_backward", 6, 3, kAttention, AttentionBackward,
     AttentionBackwardFlops},
    {"flash_attention", "_scaled_dot_product_flash_attention", 3, 4, kAttention, Attention,
     AttentionFlops},
    {"flash_attention_backward", "_scaled_dot_product_flash_attention_backward", 8, 3, kAttention,
     AttentionBackward, AttentionBackwardFlops},
    {"flash_attention_cpu", "_scaled_dot_product_flash_attention_for_cpu", 3, 2, kAttention,
     Attention, AttentionFlops},
    {"flash_attention_cpu_backward", "_scaled_dot_product_flash_attention_for_cpu_backward", 6, 3,
     kAttention, AttentionBackward, AttentionBackwardFlops},
    {"efficient_attention", "_scaled_dot_product_efficient_attention", 3, 4, kAttention, Attention,
     AttentionFlops},
    {"efficient_attention_backward", "_scaled_dot_product_efficient_attention_backward", 8, 3,
     kAttention, AttentionBackward, AttentionBackwardFlops},
};

// Bytes that a tensor's elements take in memory; repeated elements (strides of 0) count once.
int64_t Footprint(const pb::TensorType& t) {
  pb::TensorType distinct = t;
  for (int i = 0; i < distinct.strides_size() && i < distinct.shape_size(); ++i) {
    if (distinct.strides(i) == 0) distinct.set_shape(i, 1);
  }
  return NumelOf(distinct) * SizeOf(static_cast<DType>(t.dtype()));
}

// What a kernel reads and writes. An embedding reads only the rows that it looks up.
int64_t MovedBytes(const pb::Kernel& k) {
  int64_t bytes = 0;
  for (const pb::TensorType& t : k.results()) bytes += Footprint(t);
  for (int i = 0; i < k.operands_size(); ++i) {
    const bool table = i == 0 && k.name() == "embedding";
    bytes += Footprint(table ? k.results(0) : k.operands(i));
  }
  return bytes;
}

}  // namespace

std::span<const KernelInfo> All() { return kKernels; }

const KernelInfo* Find(std::string_view name) {
  static const auto* const kByName = [] {
    auto* map = new std::unordered_map<std::string_view, const KernelInfo*>;
    for (const KernelInfo& info : kKernels) map->emplace(info.name, &info);
    return map;
  }();
  auto it = kByName->find(name);
  return it == kByName->end() ? nullptr : it->second;
}

bool Draws(const pb::Kernel& kernel) {
  if (kernel.has_attention()) return kernel.attention().dropout() > 0;
  // dropout_backward reads the mask.
  return (kernel.name() == "dropout" || kernel.name() == "dropout_mask") && kernel.scalar() > 0;
}

Status Complete(pb::Kernel& kernel) {
  const KernelInfo* info = Find(kernel.name());
  if (info == nullptr) {
    return InvalidPlan(fmt::format("kernel \"{}\" is not in the op library", kernel.name()));
  }
  if (kernel.operands_size() != info->operands || kernel.results_size() != info->results) {
    return InvalidPlan(fmt::format(
        "kernel \"{}\" has {} operands and {} results, expected {} and {}", kernel.name(),
        kernel.operands_size(), kernel.results_size(), info->operands, info->results));
  }
  RETURN_IF_ERROR(info->check(kernel));
  kernel.set_flops(info->flops(kernel));
  kernel.set_bytes(MovedBytes(kernel));
  kernel.set_matmul(info->cost == CostClass::kMatmul || info->cost == CostClass::kAttention);
  return OkStatus();
}

}  // namespace foreshard::oplib
