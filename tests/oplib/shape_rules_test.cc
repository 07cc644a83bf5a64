// Every kernel of the library with shapes that fit, and with one of each kind that do not.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "proto/oplib/oplib.h"
#include "tests/oplib/kernel_text.h"

namespace foreshard::oplib {
namespace {

using Change = std::function<void(pb::Kernel&)>;

struct Rule {
  std::vector<std::string> names;  // kernels that share the rule and the counts
  Shapes operands;
  Shapes results;
  Change attribute;           // sets what the kernel needs beside its tensors, may be empty
  std::vector<Change> wrong;  // each breaks the rule
};

Change Operand(int i, std::vector<int64_t> shape) {
  return [i, shape](pb::Kernel& k) {
    k.mutable_operands(i)->mutable_shape()->Assign(shape.begin(), shape.end());
  };
}
Change Result(int i, std::vector<int64_t> shape) {
  return [i, shape](pb::Kernel& k) {
    k.mutable_results(i)->mutable_shape()->Assign(shape.begin(), shape.end());
  };
}
void SetScalar(pb::Kernel& k) { k.set_scalar(2); }
void SetCausal(pb::Kernel& k) { k.mutable_attention()->set_causal(true); }
// Rope's input, tables and result with heads of 5.
void SetOddHeads(pb::Kernel& k) {
  for (pb::TensorType& t : *k.mutable_operands()) t.set_shape(t.shape_size() - 1, 5);
  k.mutable_results(0)->set_shape(3, 5);
}
void SetDim1(pb::Kernel& k) { k.set_dim(1); }
void NoAttribute(pb::Kernel& k) { k.clear_attributes(); }
// Elements 2 and 3 of the last of two dimensions.
void SetSlice(pb::Kernel& k) {
  k.mutable_slice()->set_dim(1);
  k.mutable_slice()->set_start(2);
  k.mutable_slice()->set_length(2);
}
Change SliceAt(int64_t dim, int64_t start, int64_t length) {
  return [=](pb::Kernel& k) {
    k.mutable_slice()->set_dim(dim);
    k.mutable_slice()->set_start(start);
    k.mutable_slice()->set_length(length);
  };
}

std::vector<Rule> Elementwise() {
  return {
      {{"add", "mul"}, {{2, 3}, {3}}, {{2, 3}}, {}, {Operand(1, {4}), Operand(0, {2, 2, 3})}},
      {{"relu_backward", "gelu_backward", "gelu_tanh_backward", "tanh_backward", "dropout_backward",
        "silu_backward"},
       {{2, 3}, {2, 3}},
       {{2, 3}},
       {},
       {Operand(0, {3, 2}), Operand(1, {3, 2})}},
      {{"neg", "rsqrt", "cos", "sin", "relu", "gelu", "gelu_tanh", "tanh", "silu"},
       {{2, 3}},
       {{2, 3}},
       {},
       {Operand(0, {3, 2}), Result(0, {3})}},
      {{"softmax", "log_softmax"}, {{2, 3}}, {{2, 3}}, {}, {Operand(0, {1, 3}), Operand(0, {3})}},
      {{"softmax_backward", "log_softmax_backward"},
       {{2, 3}, {2, 3}},
       {{2, 3}},
       {},
       {Operand(0, {1, 3}), Operand(1, {2, 1})}},
      {{"add_"}, {{2, 3}, {2, 3}}, {{2, 3}}, {}, {Operand(1, {3}), Result(0, {3, 2})}},
      {{"add_scalar", "mul_scalar", "pow_scalar"},
       {{2, 3}},
       {{2, 3}},
       SetScalar,
       {Result(0, {3, 2}), NoAttribute}},
      {{"dropout"},
       {{2, 3}},
       {{2, 3}, {2, 3}},
       SetScalar,
       {Result(0, {3, 2}), Result(1, {3}), NoAttribute}},
      {{"div_expand"}, {{2, 1}}, {{2, 3}}, SetScalar, {Operand(0, {2, 2}), NoAttribute}},
      {{"cast", "mask_to_bias", "ones_like"}, {{2, 3}}, {{2, 3}}, {}, {Result(0, {3, 2})}},
      {{"copy", "tril"},
       {{2, 3}},
       {{2, 3}},
       {},
       {Result(0, {3, 2}), [](pb::Kernel& k) { k.mutable_results(0)->set_dtype(pb::BF16); }}},
  };
}

std::vector<Rule> JoinsAndSums() {
  return {
      {{"cat2"},
       {{2, 3}, {2, 4}},
       {{2, 7}},
       {},
       {Result(0, {2, 8}), Operand(1, {3, 4}), Operand(1, {})}},
      {{"cat3"}, {{2, 3}, {2, 4}, {2, 1}}, {{2, 8}}, {}, {Result(0, {2, 7}), Operand(2, {3, 1})}},
      {{"slice_backward"},
       {{2, 2}},
       {{2, 5}},
       SetSlice,
       {NoAttribute, Operand(0, {2, 3}), SliceAt(2, 0, 2), SliceAt(1, 4, 2), SliceAt(1, -1, 2),
        SliceAt(1, INT64_MAX, 2)}},
      {{"pad_last"},
       {{2, 3}},
       {{2, 5}},
       SetScalar,
       {NoAttribute, Result(0, {2, 2}), Result(0, {3, 5}), Result(0, {2, 3, 5}), Operand(0, {}),
        [](pb::Kernel& k) { k.mutable_results(0)->set_dtype(pb::BF16); }}},
      {{"mean_last"}, {{2, 3}}, {{2, 1}}, {}, {Result(0, {2, 3}), Operand(0, {})}},
      {{"sum_all"}, {{2, 3}}, {{}}, {}, {Result(0, {1})}},
      {{"sum_to"}, {{2, 3}}, {{1, 3}}, {}, {Result(0, {3}), Result(0, {2, 2})}},
      {{"sum_dim"},
       {{2, 3, 4}},
       {{2, 1, 4}},
       SetDim1,
       {Result(0, {2, 3, 1}), NoAttribute, [](pb::Kernel& k) { k.set_dim(3); },
        [](pb::Kernel& k) { k.set_dim(-1); }}},
  };
}

std::vector<Rule> MatrixProducts() {
  return {
      {{"mm"},
       {{2, 3}, {3, 4}},
       {{2, 4}},
       {},
       {Operand(1, {4, 3}), Result(0, {4, 2}), Operand(0, {2, 3, 1}), Result(0, {8})}},
      {{"addmm"}, {{4}, {2, 3}, {3, 4}}, {{2, 4}}, {}, {Operand(0, {2}), Operand(2, {2, 4})}},
      {{"bmm"},
       {{5, 2, 3}, {5, 3, 4}},
       {{5, 2, 4}},
       {},
       {Operand(1, {4, 3, 4}), Operand(1, {5, 2, 4}), Result(0, {2, 4}), Result(0, {5, 4, 2})}},
  };
}

std::vector<Rule> Modules() {
  return {
      {{"embedding"},
       {{10, 4}, {2, 3}},
       {{2, 3, 4}},
       {},
       {Result(0, {2, 3, 5}), Operand(0, {10}), Operand(1, {3, 2})}},
      {{"embedding_backward"},
       {{2, 3, 4}, {2, 3}},
       {{10, 4}},
       {},
       {Operand(0, {2, 3, 5}), Result(0, {10}), Operand(1, {3})}},
      {{"layer_norm"},
       {{2, 3}, {3}, {3}},
       {{2, 3}, {2, 1}, {2, 1}},
       {},
       {Operand(1, {2}), Operand(2, {2}), Result(0, {3, 2}), Result(1, {2}), Operand(0, {})}},
      {{"layer_norm_nobias"},
       {{2, 3}, {3}},
       {{2, 3}, {2, 1}, {2, 1}},
       {},
       {Operand(1, {2}), Result(2, {2, 3})}},
      {{"layer_norm_backward"},
       {{2, 3}, {2, 3}, {2, 1}, {2, 1}, {3}},
       {{2, 3}, {3}, {3}},
       {},
       {Operand(0, {3, 2}), Operand(2, {1}), Operand(3, {1}), Operand(4, {2}), Result(0, {3}),
        Result(2, {2})}},
      {{"layer_norm_backward_nobias"},
       {{2, 3}, {2, 3}, {2, 1}, {2, 1}, {3}},
       {{2, 3}, {3}},
       {},
       {Result(1, {2})}},
      {{"rms_norm"}, {{2, 3}, {3}}, {{2, 3}, {2, 1}}, {}, {Operand(1, {2}), Result(1, {2})}},
      {{"rms_norm_backward"},
       {{2, 3}, {2, 3}, {2, 1}, {3}},
       {{2, 3}, {3}},
       {},
       {Operand(0, {3}), Operand(2, {2, 3}), Operand(3, {2}), Result(0, {3}), Result(1, {2})}},
      {{"rope", "rope_backward"},
       {{2, 3, 4, 6}, {1, 4, 6}, {1, 4, 6}},
       {{2, 3, 4, 6}},
       {},
       {Operand(0, {3, 4, 6}), Operand(1, {4, 6}), Operand(2, {1, 3, 6}), Operand(2, {3, 4, 6}),
        Result(0, {2, 4, 3, 6}), SetOddHeads}},
  };
}

std::vector<Rule> Losses() {
  return {
      {{"nll_loss"},
       {{4, 10}, {4}},
       {{}, {}},
       {},
       {Operand(0, {40}), Operand(1, {5}), Result(0, {1}), Result(1, {4})}},
      {{"nll_loss_backward"},
       {{}, {4}, {}},
       {{4, 10}},
       {},
       {Operand(0, {4}), Operand(1, {5}), Result(0, {40})}},
      {{"cross_entropy"},
       {{4, 10}, {4}},
       {{}, {4}},
       {},
       {Operand(0, {40}), Operand(1, {5}), Result(0, {1}), Result(1, {10})}},
      {{"cross_entropy_backward"},
       {{}, {4, 10}, {4}, {4}},
       {{4, 10}},
       {},
       {Operand(0, {4}), Operand(1, {40}), Result(0, {10, 4}), Operand(2, {5}), Operand(3, {5})}},
  };
}

std::vector<Rule> Attentions() {
  const std::vector<int64_t> q = {2, 4, 8, 16};
  const std::vector<int64_t> kv = {2, 2, 6, 16};
  const std::vector<int64_t> lse = {2, 4, 8};
  const std::vector<Change> forward = {NoAttribute,
                                       Operand(0, {4, 8, 16}),
                                       Operand(1, {2, 3, 6, 16}),
                                       Operand(1, {2, 2, 6, 8}),
                                       Operand(1, {1, 2, 6, 16}),
                                       Operand(2, {2, 2, 5, 16}),
                                       Result(0, {2, 8, 4, 16}),
                                       Result(1, {2, 4})};
  const std::vector<Change> backward = {NoAttribute,
                                        Operand(0, {2, 8, 4, 16}),
                                        Operand(2, {2, 3, 6, 16}),
                                        Operand(3, {2, 2, 5, 16}),
                                        Operand(4, {2, 8, 4, 16}),
                                        Operand(5, {2}),
                                        Result(0, kv),
                                        Result(1, q),
                                        Result(2, q)};
  return {
      {{"attention", "flash_attention_cpu"}, {q, kv, kv}, {q, lse}, SetCausal, forward},
      {{"flash_attention", "efficient_attention"},
       {q, kv, kv},
       {q, lse, {2}, {}},
       SetCausal,
       forward},
      {{"attention_backward", "flash_attention_cpu_backward"},
       {q, q, kv, kv, q, lse},
       {q, kv, kv},
       SetCausal,
       backward},
      {{"flash_attention_backward", "efficient_attention_backward"},
       {q, q, kv, kv, q, lse, {2}, {}},
       {q, kv, kv},
       SetCausal,
       backward},
  };
}

std::vector<Rule> AllRules() {
  std::vector<Rule> all;
  for (const auto& part :
       {Elementwise(), JoinsAndSums(), MatrixProducts(), Modules(), Losses(), Attentions()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

pb::Kernel Right(const Rule& rule, const std::string& name) {
  pb::Kernel k = KernelOf(name, rule.operands, rule.results);
  if (rule.attribute) rule.attribute(k);
  return k;
}

TEST(OplibShapes, RightShapesAreTaken) {
  for (const Rule& rule : AllRules()) {
    for (const std::string& name : rule.names) {
      pb::Kernel k = Right(rule, name);
      const Status status = Complete(k);
      EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    }
  }
}

TEST(OplibShapes, WrongShapesAreRefused) {
  for (const Rule& rule : AllRules()) {
    for (const std::string& name : rule.names) {
      for (size_t i = 0; i < rule.wrong.size(); ++i) {
        pb::Kernel k = Right(rule, name);
        rule.wrong[i](k);
        const Status status = Complete(k);
        EXPECT_EQ(status.code(), StatusCode::kInvalidPlan) << name << ", wrong shape " << i;
      }
    }
  }
}

TEST(OplibShapes, EveryKernelHasARowHere) {
  // Fills read nothing, so that no shape is wrong for them.
  std::set<std::string_view> missing = {};
  for (const KernelInfo& info : All()) missing.insert(info.name);
  for (const char* fill : {"arange", "ones", "zeros", "dropout_mask"}) missing.erase(fill);
  const std::vector<Rule> rules = AllRules();
  for (const Rule& rule : rules) {
    for (const std::string& name : rule.names) EXPECT_EQ(missing.erase(name), 1u) << name;
  }
  for (std::string_view name : missing) ADD_FAILURE() << name << " has no row";
}

}  // namespace
}  // namespace foreshard::oplib
