#include "proto/oplib/oplib.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "planner/model_source.h"
#include "tests/oplib/kernel_text.h"
#include "tests/planner/plan_helpers.h"

namespace foreshard::oplib {
namespace {

pb::Kernel Completed(pb::Kernel kernel) {
  const Status status = Complete(kernel);
  EXPECT_TRUE(status.ok()) << kernel.name() << ": " << status.message();
  return kernel;
}

TEST(Oplib, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const KernelInfo& info : All()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(Find(info.name), &info);
    EXPECT_FALSE(info.aten.empty()) << info.name;
    EXPECT_GT(info.results, 0) << info.name;
    ASSERT_NE(info.check, nullptr) << info.name;
    ASSERT_NE(info.flops, nullptr) << info.name;
    ASSERT_NE(info.scratch, nullptr) << info.name;
    EXPECT_TRUE(info.cost == CostClass::kMatmul || info.cost == CostClass::kAttention ||
                info.cost == CostClass::kMemory)
        << info.name;
  }
  EXPECT_EQ(Find("conv"), nullptr);
  EXPECT_EQ(Find(""), nullptr);
}

TEST(Oplib, DerivativesAreRowsOfTheLibrary) {
  for (const KernelInfo& info : All()) {
    EXPECT_FALSE(info.derivative.empty()) << info.name;
    if (info.derivative == "view" || info.derivative == "none") continue;
    std::istringstream words{std::string(info.derivative)};
    for (std::string word; words >> word;) {
      EXPECT_NE(Find(word), nullptr) << info.name << ": " << word;
    }
  }
}

// Kernels of backwards are what derivatives are made of, and have none of their own.
TEST(Oplib, BackwardKernelsBelongToOneForwardKernel) {
  for (const KernelInfo& info : All()) {
    if (info.name.find("_backward") == std::string_view::npos) continue;
    EXPECT_EQ(info.derivative, "none") << info.name;
    const auto users = std::count_if(All().begin(), All().end(), [&](const KernelInfo& other) {
      return other.derivative == info.name;
    });
    // A slice is a view, which is no row.
    EXPECT_EQ(users, info.name == "slice_backward" ? 0 : 1) << info.name;
  }
}

TEST(Oplib, RefusesUnknownKernelsAndWrongCounts) {
  pb::Kernel unknown = KernelOf("conv", {{2}}, {{2}});
  EXPECT_EQ(Complete(unknown).message(), "kernel \"conv\" is not in the op library");
  pb::Kernel counts = KernelOf("mm", {{2, 3}}, {{2, 4}});
  EXPECT_EQ(Complete(counts).message(),
            "kernel \"mm\" has 1 operands and 1 results, expected 2 and 1");
}

TEST(OplibWork, MatrixProductsTakeTwoOperationsForEachMultiplyAdd) {
  // 2 M N K, and B of them.
  EXPECT_EQ(Completed(KernelOf("mm", {{3, 5}, {5, 7}}, {{3, 7}})).flops(), 2 * 3 * 7 * 5);
  EXPECT_EQ(Completed(KernelOf("addmm", {{7}, {3, 5}, {5, 7}}, {{3, 7}})).flops(), 2 * 3 * 7 * 5);
  EXPECT_EQ(Completed(KernelOf("bmm", {{2, 3, 5}, {2, 5, 7}}, {{2, 3, 7}})).flops(),
            2 * 2 * 3 * 7 * 5);
}

pb::Kernel Attention(bool causal) {
  // B 2, H 4, T 8, D 16; 2 heads of keys, 6 of them.
  pb::Kernel k = KernelOf("attention", {{2, 4, 8, 16}, {2, 2, 6, 16}, {2, 2, 6, 16}},
                          {{2, 4, 8, 16}, {2, 4, 8}});
  k.mutable_attention()->set_causal(causal);
  return k;
}

TEST(OplibWork, AttentionIsTwoProductsAndCausalHalvesThem) {
  // q k^T and p v: 2 * 2 B H T S D each.
  constexpr double kFull = 2.0 * 2 * 2 * 4 * 8 * 6 * 16;
  EXPECT_EQ(Completed(Attention(false)).flops(), kFull);
  EXPECT_EQ(Completed(Attention(true)).flops(), kFull / 2);
  EXPECT_TRUE(Completed(Attention(true)).matmul());
}

TEST(OplibWork, AttentionBackwardIsFiveProducts) {
  pb::Kernel k = KernelOf(
      "attention_backward",
      {{1, 4, 8, 16}, {1, 4, 8, 16}, {1, 4, 8, 16}, {1, 4, 8, 16}, {1, 4, 8, 16}, {1, 4, 8}},
      {{1, 4, 8, 16}, {1, 4, 8, 16}, {1, 4, 8, 16}});
  k.mutable_attention()->set_causal(false);
  EXPECT_EQ(Completed(k).flops(), 5.0 * 2 * 4 * 8 * 8 * 16);
}

pb::Kernel FlashBackward(int64_t key_heads) {
  const std::vector<int64_t> q = {2, 4, 100, 40};
  const std::vector<int64_t> k = {2, key_heads, 60, 40};
  pb::Kernel kernel =
      KernelOf("flash_attention_backward", {q, q, k, k, q, {2, 4, 100}, {2}, {}}, {q, k, k});
  kernel.mutable_attention()->set_causal(true);
  for (int i : {1, 2, 3}) kernel.mutable_operands(i)->set_dtype(pb::BF16);
  return kernel;
}

TEST(OplibScratch, FlashBackwardAccumulatesInPaddedRowsAndExpandsGroupedHeads) {
  // B 2, H 4; 100 rows become 128, a head of 40 becomes 64: fp32 dq and one row sum each.
  constexpr int64_t kEqual = 2 * 4 * 128 * 64 * 4 + 2 * 4 * 128 * 4;
  const auto scratch = Find("flash_attention_backward")->scratch;
  EXPECT_EQ(scratch(Completed(FlashBackward(4))), kEqual);
  // dk and dv of 60 keys in bf16, for four heads instead of two.
  EXPECT_EQ(scratch(Completed(FlashBackward(2))), kEqual + 2 * (2 * 60 * 4 * 40 * 2));
}

TEST(OplibScratch, NoOtherKernelHasAny) {
  const auto none = Find("add")->scratch;
  for (const KernelInfo& info : All()) {
    EXPECT_EQ(info.scratch == none, info.name != "flash_attention_backward") << info.name;
  }
}

TEST(OplibWork, ElementwiseKernelsMoveTheirOperandsAndResults) {
  const pb::Kernel add = Completed(KernelOf("add", {{4, 8}, {8}}, {{4, 8}}));
  // fp32: 32 + 8 read, 32 written; one operation each.
  EXPECT_EQ(add.bytes(), (32 + 8 + 32) * 4);
  EXPECT_EQ(add.flops(), 32);
  EXPECT_FALSE(add.matmul());
}

TEST(OplibWork, EmbeddingReadsOnlyTheRowsLookedUp) {
  pb::Kernel k = KernelOf("embedding", {{32000, 64}, {2, 3}}, {{2, 3, 64}});
  k.mutable_operands(1)->set_dtype(pb::INT64);
  // 6 rows of 64 fp32 read and written, 6 indices of 8 bytes.
  EXPECT_EQ(Completed(k).bytes(), 2 * 6 * 64 * 4 + 6 * 8);
}

TEST(OplibWork, RepeatedElementsAreReadOnce) {
  pb::Kernel k = KernelOf("copy", {{2, 3, 4}}, {{2, 3, 4}});
  for (int64_t stride : {4, 0, 1}) k.mutable_operands(0)->add_strides(stride);
  // 2 x 4 distinct elements read, 24 written.
  EXPECT_EQ(Completed(k).bytes(), (8 + 24) * 4);
}

TEST(OplibWork, HugeShapesSaturate) {
  pb::Kernel k = KernelOf("neg", {{INT64_MAX, INT64_MAX}}, {{INT64_MAX, INT64_MAX}});
  EXPECT_GT(Completed(k).flops(), 0);
}

// Work that the library gives is what the plan carries, and matrix kernels have some.
TEST(OplibPlans, KernelsOfALlamaAreCompleteUnderEachProfile) {
  const StatusOr<pb::Model> model = LoadModel("tiny-llama-1.1b");
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::set<std::string> used;
  for (const char* profile : {"torch-cuda", "torch-cpu", "foreshard"}) {
    for (const char* attention : {"auto", "math"}) {
      PlanRequest request;
      request.world_size = 2;
      request.seq = 16;
      request.kernel_profile = profile;
      request.attention = attention;
      const pb::Plan plan = PlanOf(*model, request);
      for (const pb::Kernel& kernel : plan.kernels()) {
        used.insert(kernel.name());
        pb::Kernel bare = kernel;
        bare.clear_flops();
        bare.clear_bytes();
        bare.clear_matmul();
        EXPECT_EQ(Completed(bare).SerializeAsString(), kernel.SerializeAsString());
        EXPECT_GT(kernel.bytes(), 0) << kernel.name();
        EXPECT_GE(kernel.flops(), kernel.matmul() ? 1 : 0) << kernel.name();
        if (kernel.name() != "mm") continue;
        const double k = static_cast<double>(kernel.operands(0).shape(1));
        EXPECT_EQ(kernel.flops(), 2.0 * static_cast<double>(kernel.results(0).shape(0)) *
                                      static_cast<double>(kernel.results(0).shape(1)) * k);
      }
    }
  }
  for (const char* name : {"mm", "bmm", "flash_attention", "flash_attention_cpu", "attention",
                           "rms_norm", "rope", "cross_entropy", "embedding"}) {
    EXPECT_TRUE(used.contains(name)) << name;
  }
}

}  // namespace
}  // namespace foreshard::oplib
