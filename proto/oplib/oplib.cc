#include "proto/oplib/oplib.h"

#include <fmt/format.h>

#include <unordered_map>

#include "proto/base/dtype.h"
#include "proto/oplib/rules.h"

namespace foreshard::oplib {
namespace {

constexpr std::string_view kView = "view";
constexpr std::string_view kNone = "none";
constexpr CostClass kMatmul = CostClass::kMatmul;
constexpr CostClass kAttention = CostClass::kAttention;
constexpr CostClass kMemory = CostClass::kMemory;

// name, PyTorch's operator, operands, results, cost class, shape rule, work, derivative, scratch
constexpr KernelInfo kKernels[] = {
    // elementwise
    {"add", "add.Tensor", 2, 1, kMemory, Elementwise, OnePerResult, kView, NoScratch},
    {"add_", "add_.Tensor", 2, 1, kMemory, InPlaceAdd, OnePerResult, kNone, NoScratch},
    {"mul", "mul.Tensor", 2, 1, kMemory, Elementwise, OnePerResult, "mul", NoScratch},
    {"add_scalar", "add.Tensor", 1, 1, kMemory, Scalar, OnePerResult, kView, NoScratch},
    {"mul_scalar", "mul.Tensor", 1, 1, kMemory, Scalar, OnePerResult, "mul_scalar", NoScratch},
    {"pow_scalar", "pow.Tensor_Scalar", 1, 1, kMemory, Scalar, OnePerResult,
     "pow_scalar mul_scalar mul", NoScratch},
    {"neg", "neg", 1, 1, kMemory, Elementwise, OnePerResult, "neg", NoScratch},
    {"rsqrt", "rsqrt", 1, 1, kMemory, Elementwise, OnePerResult, "pow_scalar mul_scalar mul",
     NoScratch},
    {"cos", "cos", 1, 1, kMemory, Elementwise, OnePerResult, kNone, NoScratch},
    {"sin", "sin", 1, 1, kMemory, Elementwise, OnePerResult, kNone, NoScratch},
    {"relu", "relu", 1, 1, kMemory, Elementwise, OnePerResult, "relu_backward", NoScratch},
    {"gelu", "gelu", 1, 1, kMemory, Elementwise, OnePerResult, "gelu_backward", NoScratch},
    {"gelu_tanh", "gelu", 1, 1, kMemory, Elementwise, OnePerResult, "gelu_tanh_backward",
     NoScratch},
    {"gelu_tanh_backward", "gelu_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone,
     NoScratch},
    {"tanh", "tanh", 1, 1, kMemory, Elementwise, OnePerResult, "tanh_backward", NoScratch},
    {"tanh_backward", "tanh_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone, NoScratch},
    {"dropout", "native_dropout", 1, 2, kMemory, Dropout, OnePerResult, "dropout_backward",
     NoScratch},
    {"dropout_backward", "native_dropout_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone,
     NoScratch},
    {"dropout_mask", "bernoulli_", 0, 1, kMemory, Fill, OnePerResult, kNone, NoScratch},
    {"silu", "silu", 1, 1, kMemory, Elementwise, OnePerResult, "silu_backward", NoScratch},
    {"relu_backward", "threshold_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone,
     NoScratch},
    {"gelu_backward", "gelu_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone, NoScratch},
    {"silu_backward", "silu_backward", 2, 1, kMemory, Elementwise, OnePerResult, kNone, NoScratch},
    {"div_expand", "div.Scalar", 1, 1, kMemory, DivExpand, OnePerResult, kNone, NoScratch},
    {"mask_to_bias", "where.self", 1, 1, kMemory, CastRule, OnePerResult, kNone, NoScratch},
    {"tril", "tril", 1, 1, kMemory, Copies, NoFlops, kNone, NoScratch},
    // copies and fills
    {"cast", "_to_copy", 1, 1, kMemory, CastRule, NoFlops, "cast", NoScratch},
    {"copy", "clone", 1, 1, kMemory, Copies, NoFlops, kView, NoScratch},
    {"cat2", "cat", 2, 1, kMemory, Cat, NoFlops, kView, NoScratch},
    {"cat3", "cat", 3, 1, kMemory, Cat, NoFlops, kNone, NoScratch},
    {"pad_last", "constant_pad_nd", 1, 1, kMemory, PadLast, NoFlops, kNone, NoScratch},
    {"slice_backward", "slice_backward", 1, 1, kMemory, SliceBackward, NoFlops, kNone, NoScratch},
    {"arange", "arange", 0, 1, kMemory, Fill, NoFlops, kNone, NoScratch},
    {"zeros", "zeros", 0, 1, kMemory, Fill, NoFlops, kNone, NoScratch},
    {"ones", "ones", 0, 1, kMemory, Fill, NoFlops, kNone, NoScratch},
    {"ones_like", "ones_like", 1, 1, kMemory, CastRule, NoFlops, kNone, NoScratch},
    // reductions
    {"mean_last", "mean.dim", 1, 1, kMemory, MeanLast, OnePerOperand, "div_expand", NoScratch},
    {"sum_all", "sum", 1, 1, kMemory, SumAll, OnePerOperand, kView, NoScratch},
    {"sum_to", "sum.dim_IntList", 1, 1, kMemory, SumTo, OnePerOperand, kNone, NoScratch},
    {"sum_dim", "sum.dim_IntList", 1, 1, kMemory, SumDim, OnePerOperand, kNone, NoScratch},
    {"softmax", "_safe_softmax", 1, 1, kMemory, RowWise, OnePerResult, "softmax_backward",
     NoScratch},
    {"softmax_backward", "_softmax_backward_data", 2, 1, kMemory, RowWise, OnePerResult, kNone,
     NoScratch},
    {"log_softmax", "_log_softmax", 1, 1, kMemory, RowWise, OnePerResult, "log_softmax_backward",
     NoScratch},
    {"log_softmax_backward", "_log_softmax_backward_data", 2, 1, kMemory, RowWise, OnePerResult,
     kNone, NoScratch},
    // matrix products
    {"mm", "mm", 2, 1, kMatmul, Mm, MatmulFlops, "mm", NoScratch},
    {"addmm", "addmm", 3, 1, kMatmul, Addmm, MatmulFlops, "mm sum_to", NoScratch},
    {"bmm", "bmm", 2, 1, kMatmul, Bmm, MatmulFlops, "bmm", NoScratch},
    // modules
    {"embedding", "embedding", 2, 1, kMemory, Embedding, NoFlops, "embedding_backward", NoScratch},
    {"embedding_backward", "embedding_dense_backward", 2, 1, kMemory, EmbeddingBackward,
     OnePerOperand, kNone, NoScratch},
    {"layer_norm", "native_layer_norm", 3, 3, kMemory, LayerNorm, OnePerOperand,
     "layer_norm_backward", NoScratch},
    {"layer_norm_nobias", "native_layer_norm", 2, 3, kMemory, LayerNorm, OnePerOperand,
     "layer_norm_backward_nobias", NoScratch},
    {"layer_norm_backward", "native_layer_norm_backward", 5, 3, kMemory, LayerNormBackward,
     OnePerOperand, kNone, NoScratch},
    {"layer_norm_backward_nobias", "native_layer_norm_backward", 5, 2, kMemory, LayerNormBackward,
     OnePerOperand, kNone, NoScratch},
    {"rms_norm", "_fused_rms_norm", 2, 2, kMemory, RmsNorm, OnePerOperand, "rms_norm_backward",
     NoScratch},
    {"rms_norm_backward", "_fused_rms_norm_backward", 4, 2, kMemory, RmsNormBackward, OnePerOperand,
     kNone, NoScratch},
    {"rope", "rope", 3, 1, kMemory, Rope, OnePerResult, "rope_backward", NoScratch},
    {"rope_backward", "rope_backward", 3, 1, kMemory, Rope, OnePerResult, kNone, NoScratch},
    // losses
    {"nll_loss", "nll_loss_forward", 2, 2, kMemory, NllLoss, NoFlops, "nll_loss_backward",
     NoScratch},
    {"nll_loss_backward", "nll_loss_backward", 3, 1, kMemory, NllLossBackward, NoFlops, kNone,
     NoScratch},
    {"cross_entropy", "cross_entropy", 2, 2, kMemory, CrossEntropy, OnePerOperand,
     "cross_entropy_backward", NoScratch},
    {"cross_entropy_backward", "cross_entropy_backward", 4, 1, kMemory, CrossEntropyBackward,
     OnePerResult, kNone, NoScratch},
    // fused attention
    {"attention", "attention", 3, 2, kAttention, Attention, AttentionFlops, "attention_backward",
     NoScratch},
    {"attention_backward", "attention_backward", 6, 3, kAttention, AttentionBackward,
     AttentionBackwardFlops, kNone, NoScratch},
    {"flash_attention", "_scaled_dot_product_flash_attention", 3, 4, kAttention, Attention,
     AttentionFlops, "flash_attention_backward", NoScratch},
    {"flash_attention_backward", "_scaled_dot_product_flash_attention_backward", 8, 3, kAttention,
     AttentionBackward, AttentionBackwardFlops, kNone, FlashBackwardScratch},
    {"flash_attention_cpu", "_scaled_dot_product_flash_attention_for_cpu", 3, 2, kAttention,
     Attention, AttentionFlops, "flash_attention_cpu_backward", NoScratch},
    {"flash_attention_cpu_backward", "_scaled_dot_product_flash_attention_for_cpu_backward", 6, 3,
     kAttention, AttentionBackward, AttentionBackwardFlops, kNone, NoScratch},
    {"efficient_attention", "_scaled_dot_product_efficient_attention", 3, 4, kAttention, Attention,
     AttentionFlops, "efficient_attention_backward", NoScratch},
    {"efficient_attention_backward", "_scaled_dot_product_efficient_attention_backward", 8, 3,
     kAttention, AttentionBackward, AttentionBackwardFlops, kNone, NoScratch},
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
