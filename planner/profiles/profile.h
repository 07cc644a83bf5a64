// Kernel profiles: whose software runs. A profile says which kernels each operation of a model
// graph becomes, and with them what is saved for backward and which temporaries appear. Facts about
// PyTorch were checked against recorded runs; docs/kernel-profiles.md lists them row by row.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "planner/eager/eager.h"
#include "proto/base/status.h"

namespace foreshard {

struct KernelProfile {
  using Norm = Tensor (*)(Eager&, const Tensor& x, const Tensor& weight, double eps);
  using Rope = Tensor (*)(Eager&, const Tensor& x, const Tensor& cos, const Tensor& sin);
  using Attention = Tensor (*)(Eager&, const Tensor& q, const Tensor& k, const Tensor& v,
                               bool causal, double dropout);
  using Activation = Tensor (*)(Eager&, const Tensor& x);
  using Dropout = Tensor (*)(Eager&, const Tensor& x, double p);
  using Loss = Tensor (*)(Eager&, const Tensor& logits, const Tensor& labels);

  std::string_view name;
  Norm python_rms_norm;    // an RMSNorm written out in Python
  Norm library_rms_norm;   // torch.nn.RMSNorm
  DType layer_norm_stats;  // fp32, or kept in the input's dtype (then layer_norm_follows_input)
  bool layer_norm_follows_input;
  Rope rope;
  Activation gelu_new;  // written out in Python by transformers
  Dropout dropout;
  Attention flash;
  bool flash_drops;     // it can drop attention probabilities
  Attention efficient;  // nullptr where there is none
  Attention math;
  Loss cross_entropy;       // of logits [M, V] in whatever dtype they come
  bool library_workspaces;  // cuBLAS and kernel scratch come from the allocator
};

// kInvalidArgument names the known profiles.
StatusOr<const KernelProfile*> FindProfile(const std::string& name);
std::span<const KernelProfile> AllProfiles();

// Which attention runs, and why.
struct AttentionChoice {
  KernelProfile::Attention run = nullptr;
  std::string name;    // flash, efficient, math
  std::string reason;  // non-empty when it was left to `auto`
};

// What a model asks of its attention.
struct AttentionNeeds {
  DType dtype = DType::kBf16;
  bool grouped = false;  // fewer key heads than query heads
  int64_t head_dim = 0;  // the largest
  bool drops = false;    // probabilities are dropped out
};

// `requested` is auto, flash, efficient or math. `auto` picks what PyTorch's dispatcher picks for
// unmasked or causal attention. kInvalidArgument for a kernel that does not exist or cannot drop.
StatusOr<AttentionChoice> ChooseAttention(const KernelProfile& profile,
                                          const std::string& requested,
                                          const AttentionNeeds& needs);

// Recipes shared by the profile tables (profiles/recipes.cc).
namespace recipes {
Tensor PythonRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps);
Tensor CompositeRmsNorm(Eager& e, const Tensor& x, const Tensor& weight, double eps);
Tensor PythonRope(Eager& e, const Tensor& x, const Tensor& cos, const Tensor& sin);
Tensor MathAttention(Eager& e, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                     double dropout, KernelProfile::Dropout drop);
Tensor PythonGeluNew(Eager& e, const Tensor& x);
Tensor CrossEntropy(Eager& e, const Tensor& logits, const Tensor& labels);
// int64 positions 0, 1, ... of one sequence: [1, T].
Tensor Positions(Eager& e, int64_t seq);
// cos and sin of every position and frequency: [1, T, D] in `dtype`.
void RotaryTables(Eager& e, const Tensor& positions, const Tensor& inverse_frequencies, DType dtype,
                  Tensor* cos, Tensor* sin);
}  // namespace recipes

}  // namespace foreshard
