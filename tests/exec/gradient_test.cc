// Every derivative that autograd takes, against central differences: rows of the op library first,
// then the recipes that models are made of.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "planner/profiles/profile.h"
#include "proto/oplib/oplib.h"
#include "tests/exec/gradient_check.h"

namespace foreshard {
namespace {

using Inputs = const std::vector<Tensor>&;
using ops::AttentionKernel;
constexpr auto kPositive = GradientInput::kPositive;
constexpr auto kSixteenths = GradientInput::kSixteenths;
constexpr auto kConstant = GradientInput::kConstant;
constexpr auto kIndices = GradientInput::kIndices;

// Cases named after the row whose derivative they are.
std::vector<GradientCase> ElementwiseCases() {
  return {
      {"add",
       {{{2, 3, 4}}, {{3, 1}}},
       [](Eager& e, Inputs in) { return ops::Add(e, in[0], in[1]); }},
      {"mul",
       {{{2, 3, 4}}, {{3, 1}}},
       [](Eager& e, Inputs in) { return ops::Mul(e, in[0], in[1]); }},
      {"add_scalar", {{{5}}}, [](Eager& e, Inputs in) { return ops::AddScalar(e, in[0], 3); }},
      {"mul_scalar", {{{5}}}, [](Eager& e, Inputs in) { return ops::MulScalar(e, in[0], 3); }},
      {"pow_scalar", {{{5}}}, [](Eager& e, Inputs in) { return ops::Pow(e, in[0], 3); }},
      {"pow_scalar",
       {{{5}, kPositive}},
       [](Eager& e, Inputs in) { return ops::Pow(e, in[0], -1.5); }},
      {"neg", {{{2, 3}}}, [](Eager& e, Inputs in) { return ops::Neg(e, in[0]); }},
      {"rsqrt", {{{5}, kPositive}}, [](Eager& e, Inputs in) { return ops::Rsqrt(e, in[0]); }},
      {"relu", {{{9}}}, [](Eager& e, Inputs in) { return ops::Relu(e, in[0]); }},
      {"gelu", {{{9}}}, [](Eager& e, Inputs in) { return ops::Gelu(e, in[0]); }},
      {"gelu_tanh", {{{9}}}, [](Eager& e, Inputs in) { return ops::GeluTanh(e, in[0]); }},
      {"tanh", {{{9}}}, [](Eager& e, Inputs in) { return ops::Tanh(e, in[0]); }},
      {"silu", {{{9}}}, [](Eager& e, Inputs in) { return ops::Silu(e, in[0]); }},
      {"dropout", {{{6, 7}}}, [](Eager& e, Inputs in) { return ops::FusedDropout(e, in[0], 0.4); }},
      {"mul", {{{6, 7}}}, [](Eager& e, Inputs in) { return ops::CompositeDropout(e, in[0], 0.4); }},
      {"cast",
       {{{3, 4}, kSixteenths}},
       [](Eager& e, Inputs in) {
         const Tensor narrow = ops::Cast(e, in[0], DType::kBf16);
         return ops::Cast(e, narrow, DType::kFp32);
       }},
      {"copy",
       {{{2, 3, 4}}},
       [](Eager& e, Inputs in) {
         const Tensor turned = ops::Transpose(e, in[0], 0, 2);
         return ops::Contiguous(e, turned);
       }},
      {"cat2",
       {{{2, 3}}, {{2, 4}}},
       [](Eager& e, Inputs in) { return ops::CatLast(e, in[0], in[1]); }},
      {"mean_last", {{{3, 5}}}, [](Eager& e, Inputs in) { return ops::MeanLast(e, in[0]); }},
      {"sum_all",
       {{{3, 5}}},
       [](Eager& e, Inputs in) {
         const Tensor squares = ops::Pow(e, in[0], 2);
         return ops::SumAll(e, squares);
       }},
  };
}

std::vector<GradientCase> ModuleCases() {
  return {
      {"softmax", {{{3, 7}}}, [](Eager& e, Inputs in) { return ops::SafeSoftmax(e, in[0]); }},
      {"log_softmax", {{{3, 7}}}, [](Eager& e, Inputs in) { return ops::LogSoftmax(e, in[0]); }},
      {"mm",
       {{{2, 3, 5}}, {{4, 5}}},
       [](Eager& e, Inputs in) { return ops::Linear(e, in[0], in[1], nullptr); }},
      {"addmm",
       {{{2, 3, 5}}, {{4, 5}}, {{4}}},
       [](Eager& e, Inputs in) { return ops::Linear(e, in[0], in[1], &in[2]); }},
      {"addmm",
       {{{2, 3, 5}}, {{5, 4}}, {{4}}},
       [](Eager& e, Inputs in) { return ops::Conv1d(e, in[0], in[1], in[2]); }},
      {"bmm",
       {{{2, 3, 5}}, {{2, 5, 4}}},
       [](Eager& e, Inputs in) { return ops::Bmm(e, in[0], in[1]); }},
      {"embedding",
       {{{2, 5}, kIndices, 4}, {{6, 3}}},
       [](Eager& e, Inputs in) { return ops::Embedding(e, in[0], in[1]); }},
      {"layer_norm",
       {{{3, 6}}, {{6}}, {{6}}},
       [](Eager& e, Inputs in) {
         return ops::LayerNorm(e, in[0], in[1], &in[2], 1e-5, DType::kFp32);
       }},
      {"layer_norm_nobias",
       {{{3, 6}}, {{6}}},
       [](Eager& e, Inputs in) {
         return ops::LayerNorm(e, in[0], in[1], nullptr, 1e-5, DType::kFp32);
       }},
      {"rms_norm",
       {{{3, 6}}, {{6}}},
       [](Eager& e, Inputs in) { return ops::FusedRmsNorm(e, in[0], in[1], 1e-5); }},
      {"rope",
       {{{2, 3, 2, 6}}, {{1, 3, 6}, kConstant}, {{1, 3, 6}, kConstant}},
       [](Eager& e, Inputs in) {
         const Tensor heads = ops::Transpose(e, in[0], 1, 2);
         return ops::FusedRope(e, heads, in[1], in[2]);
       }},
      {"nll_loss",
       {{{5, 4}}, {{5}, kIndices, 4}},
       [](Eager& e, Inputs in) { return ops::NllLoss(e, in[0], in[1]); }},
      {"cross_entropy",
       {{{5, 4}}, {{5}, kIndices, 4}},
       [](Eager& e, Inputs in) { return ops::FusedCrossEntropy(e, in[0], in[1]); }},
  };
}

std::vector<GradientCase> AttentionCases() {
  const std::pair<const char*, AttentionKernel> kernels[] = {
      {"attention", AttentionKernel::kFlash},
      {"flash_attention", AttentionKernel::kFlashCuda},
      {"flash_attention_cpu", AttentionKernel::kFlashCpu},
      {"efficient_attention", AttentionKernel::kEfficient}};
  std::vector<GradientCase> cases;
  for (const auto& [name, kernel] : kernels) {
    for (const bool causal : {false, true}) {
      for (const double dropout : {0.0, 0.3}) {
        // grouped heads, laid out token by token; more keys than queries
        cases.push_back({name,
                         {{{1, 3, 4, 4}}, {{1, 5, 2, 4}}, {{1, 5, 2, 4}}},
                         [=, kernel = kernel](Eager& e, Inputs in) {
                           const Tensor q = ops::Transpose(e, in[0], 1, 2);
                           const Tensor k = ops::Transpose(e, in[1], 1, 2);
                           const Tensor v = ops::Transpose(e, in[2], 1, 2);
                           return ops::FusedAttention(e, kernel, q, k, v, causal, dropout);
                         }});
      }
    }
  }
  return cases;
}

std::vector<GradientCase> RecipeCases() {
  std::vector<GradientCase> cases = {
      {"PythonRmsNorm",
       {{{3, 6}}, {{6}}},
       [](Eager& e, Inputs in) { return recipes::PythonRmsNorm(e, in[0], in[1], 1e-5); }},
      {"CompositeRmsNorm",
       {{{3, 6}}, {{6}}},
       [](Eager& e, Inputs in) { return recipes::CompositeRmsNorm(e, in[0], in[1], 1e-5); }},
      {"PythonRope",
       {{{2, 3, 2, 6}}, {{1, 3, 6}, kConstant}, {{1, 3, 6}, kConstant}},
       [](Eager& e, Inputs in) {
         const Tensor heads = ops::Transpose(e, in[0], 1, 2);
         return recipes::PythonRope(e, heads, in[1], in[2]);
       }},
      {"PythonGeluNew",
       {{{9}}},
       [](Eager& e, Inputs in) { return recipes::PythonGeluNew(e, in[0]); }},
      {"CrossEntropy",
       {{{5, 4}}, {{5}, kIndices, 4}},
       [](Eager& e, Inputs in) { return recipes::CrossEntropy(e, in[0], in[1]); }},
      {"RepeatHeads",
       {{{2, 2, 3, 4}}},
       [](Eager& e, Inputs in) { return ops::RepeatHeads(e, in[0], 3); }},
      {"Slice", {{{3, 8}}}, [](Eager& e, Inputs in) { return ops::Slice(e, in[0], 1, 2, 5); }},
      {"Chunk",
       {{{2, 6}}},
       [](Eager& e, Inputs in) {
         const std::vector<Tensor> parts = ops::Chunk(e, in[0], 3);  // nothing uses the second
         return ops::Mul(e, parts[0], parts[2]);
       }},
      {"Chunk in two",
       {{{2, 6}}},
       [](Eager& e, Inputs in) {
         const std::vector<Tensor> parts = ops::Chunk(e, in[0], 2);
         return ops::Mul(e, parts[0], parts[1]);
       }},
      {"Two uses",
       {{{4}}},
       [](Eager& e, Inputs in) {
         const Tensor positive = ops::Silu(e, in[0]);
         return ops::Mul(e, positive, in[0]);
       }},
  };
  for (const bool causal : {false, true}) {
    for (const double dropout : {0.0, 0.3}) {
      for (const auto drop : {ops::FusedDropout, ops::CompositeDropout}) {
        cases.push_back({"MathAttention",
                         {{{1, 4, 3, 4}}, {{1, 2, 3, 4}}, {{1, 2, 3, 4}}},
                         [=](Eager& e, Inputs in) {
                           return recipes::MathAttention(e, in[0], in[1], in[2], causal, dropout,
                                                         drop);
                         }});
      }
    }
  }
  return cases;
}

// Central differences in fp32 with a step of 0.02: each loss is off by some 1e-7, so the slope by
// 1e-5, and the step's own error is of fifth order.
constexpr double kTolerance = 3e-4;
// A cast's gradient is rounded to bf16 on its way back.
constexpr double kCastTolerance = 0x1p-8;

GradientResult Check(const GradientCase& c) {
  const GradientResult result = CheckGradient(c);
  EXPECT_LE(result.worst, c.name == "cast" ? kCastTolerance : kTolerance) << c.name;
  EXPECT_GT(result.gradients, 0) << c.name;
  return result;
}

TEST(Gradients, OfEveryRowAreWhatDifferencesSay) {
  std::set<std::string> covered;
  std::vector<GradientCase> cases = ElementwiseCases();
  for (auto* more : {ModuleCases, AttentionCases}) {
    for (GradientCase& c : more()) cases.push_back(std::move(c));
  }
  for (const GradientCase& c : cases) {
    const GradientResult result = Check(c);
    covered.insert(c.name);
    const oplib::KernelInfo* row = oplib::Find(c.name);
    ASSERT_NE(row, nullptr) << c.name;
    EXPECT_TRUE(result.forward.count(c.name)) << c.name << " was not launched";
    std::istringstream words{std::string(row->derivative)};
    for (std::string word; words >> word;) {
      EXPECT_TRUE(word == "view" || result.backward.count(word))
          << c.name << ": its derivative does not launch " << word;
    }
  }
  for (const oplib::KernelInfo& row : oplib::All()) {
    const bool has_case = covered.count(std::string(row.name)) > 0;
    EXPECT_EQ(has_case, row.derivative != "none") << row.name;
  }
}

TEST(Gradients, OfRecipesAreWhatDifferencesSay) {
  for (const GradientCase& c : RecipeCases()) Check(c);
}

}  // namespace
}  // namespace foreshard
