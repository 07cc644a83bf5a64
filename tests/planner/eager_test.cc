#include "planner/eager/eager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/eager/ops.h"

namespace foreshard {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// Keeps gradients of parameters and notes every call.
class Hooks : public GradientHooks {
 public:
  void BeforeNode(int hook) override { calls.push_back("before " + std::to_string(hook)); }
  void AtPoint(int hook) override { calls.push_back("point " + std::to_string(hook)); }
  void ParameterGradient(int parameter, Tensor gradient, bool summed) override {
    calls.push_back((summed ? "summed parameter " : "parameter ") + std::to_string(parameter));
    gradients[parameter] = std::move(gradient);
  }
  DType GradientDType(int, DType made, DType parameter_dtype) const override {
    return casts ? parameter_dtype : made;
  }
  void AtEnd() override { calls.push_back("end"); }

  bool casts = false;
  std::vector<std::string> calls;
  std::map<int, Tensor> gradients;
};

class EagerTest : public testing::Test {
 protected:
  EagerTest()
      : builder_(plan_),
        stream_(builder_.AddStream("compute", pb::Stream::COMPUTE)),
        e_(builder_, stream_) {
    builder_.BeginSegment("step");
  }

  // A parameter, alive throughout.
  Tensor Leaf(int parameter, const Dims& shape, DType dtype = DType::kFp32) {
    const BufferId buffer =
        builder_.AddResident(Numel(shape) * SizeOf(dtype), pb::SHARDED_PARAM, stream_);
    Tensor t = e_.External(buffer, dtype, shape);
    e_.MakeLeaf(t, parameter);
    return t;
  }

  const pb::Segment& segment() const { return plan_.segments(0); }

  std::string KernelOf(const pb::Op& op) const {
    return plan_.kernels(op.compute().kernel()).name();
  }
  // Names of the kernels launched since the op `from`.
  std::vector<std::string> Kernels(int from = 0) const {
    std::vector<std::string> names;
    for (int i = from; i < segment().ops_size(); ++i) names.push_back(KernelOf(segment().ops(i)));
    return names;
  }
  // The kernel after which a buffer dies, "" if it lives.
  std::string DiesAfter(BufferId buffer) const {
    for (const pb::Op& op : segment().ops()) {
      for (int b : op.frees()) {
        if (b == buffer) return KernelOf(op);
      }
    }
    return "";
  }
  // Times each buffer was freed.
  std::map<int, int> Frees() const {
    std::map<int, int> frees;
    for (const pb::Op& op : segment().ops()) {
      for (int b : op.frees()) ++frees[b];
    }
    return frees;
  }

  pb::Plan plan_;
  PlanBuilder builder_;
  StreamId stream_;
  Eager e_;
};

TEST_F(EagerTest, TensorDiesWithItsLastHandle) {
  const Tensor x = Leaf(0, {4});
  Tensor a = ops::Neg(e_, x);
  const BufferId buffer = e_.buffer(a);
  Tensor b = a;
  a.reset();
  EXPECT_TRUE(builder_.IsAlive(buffer));
  ops::Neg(e_, x);
  b.reset();
  EXPECT_FALSE(builder_.IsAlive(buffer));
  // Freed behind the op that was issued last, the second neg.
  const pb::Op& last = segment().ops(1);
  EXPECT_THAT(last.frees(), Contains(buffer));
}

TEST_F(EagerTest, ViewsKeepTheirStorage) {
  const Tensor x = Leaf(0, {2, 6});
  Tensor a = ops::Neg(e_, x);
  const BufferId buffer = e_.buffer(a);
  Tensor view = ops::Reshape(e_, a, {3, 4});
  EXPECT_EQ(e_.buffer(view), buffer);
  EXPECT_FALSE(e_.IsSoleReference(a));
  a.reset();
  EXPECT_TRUE(builder_.IsAlive(buffer));
  view.reset();
  EXPECT_FALSE(builder_.IsAlive(buffer));
}

TEST_F(EagerTest, ReshapeCopiesOnlyWhereNoViewWillDo) {
  const Tensor x = Leaf(0, {2, 6});
  const Tensor a = ops::Neg(e_, x);
  const Tensor turned = ops::Transpose(e_, a, 0, 1);
  EXPECT_EQ(e_.buffer(turned), e_.buffer(a));
  const Tensor flat = ops::Reshape(e_, turned, {12});
  EXPECT_NE(e_.buffer(flat), e_.buffer(a));
  EXPECT_THAT(Kernels(), ElementsAre("neg", "copy"));
}

TEST_F(EagerTest, ExternalTensorsAreNeitherAllocatedNorFreed) {
  Tensor x = Leaf(0, {4});
  const BufferId buffer = e_.buffer(x);
  ops::Neg(e_, x);
  x.reset();
  EXPECT_TRUE(builder_.IsAlive(buffer));
}

TEST_F(EagerTest, NodesRunInReverseOrderOfCreation) {
  const Tensor x = Leaf(0, {4});
  const Tensor a = ops::Neg(e_, x);
  const Tensor b = ops::Relu(e_, x);
  const Tensor c = ops::Gelu(e_, a);
  const Tensor d = ops::Silu(e_, b);
  const Tensor sum = ops::Add(e_, c, d);
  const int forward = segment().ops_size();
  Hooks hooks;
  e_.Backward(sum, hooks);
  // silu was made after gelu, relu after neg; x gets two gradients.
  EXPECT_THAT(Kernels(forward), ElementsAre("ones_like", "silu_backward", "gelu_backward",
                                            "relu_backward", "neg", "add_"));
  EXPECT_THAT(hooks.calls, ElementsAre("summed parameter 0", "end"));
}

TEST_F(EagerTest, SecondGradientIsAddedInPlaceWhenNobodyElseHoldsTheFirst) {
  const Tensor x = Leaf(0, {4});
  const Tensor h = ops::Neg(e_, x);
  const Tensor positive = ops::Relu(e_, h);
  const Tensor smooth = ops::Gelu(e_, h);
  const Tensor sum = ops::Add(e_, positive, smooth);
  const int forward = segment().ops_size();
  Hooks hooks;
  e_.Backward(sum, hooks);
  EXPECT_THAT(Kernels(forward),
              ElementsAre("ones_like", "gelu_backward", "relu_backward", "add_", "neg"));
  const pb::Op& add = segment().ops(forward + 3);
  EXPECT_EQ(add.in(0), add.out(0));
}

TEST_F(EagerTest, SharedGradientsAreAddedOutOfPlace) {
  const Tensor x = Leaf(0, {4});
  const Tensor h = ops::Neg(e_, x);
  // Both operands get the very same gradient.
  const Tensor sum = ops::Add(e_, h, h);
  const int forward = segment().ops_size();
  Hooks hooks;
  e_.Backward(sum, hooks);
  EXPECT_THAT(Kernels(forward), ElementsAre("ones_like", "add", "neg"));
  const pb::Op& add = segment().ops(forward + 1);
  EXPECT_EQ(add.in(0), add.in(1));
  EXPECT_NE(add.in(0), add.out(0));
}

TEST_F(EagerTest, GradientOfABroadcastIsSummedToTheInputsShape) {
  const Tensor x = Leaf(0, {2, 3, 4});
  const Tensor row = Leaf(1, {4});
  const Tensor column = Leaf(2, {3, 1});
  const Tensor product = ops::Mul(e_, ops::Mul(e_, x, row), column);
  Hooks hooks;
  e_.Backward(product, hooks);
  EXPECT_EQ(hooks.gradients[0].shape(), (Dims{2, 3, 4}));
  EXPECT_EQ(hooks.gradients[1].shape(), (Dims{4}));
  EXPECT_EQ(hooks.gradients[2].shape(), (Dims{3, 1}));
  EXPECT_EQ(plan_.buffers(e_.buffer(hooks.gradients[1])).bytes(), 4 * 4);
  EXPECT_EQ(plan_.buffers(e_.buffer(hooks.gradients[2])).bytes(), 3 * 4);
  const std::vector<std::string> kernels = Kernels();
  EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "sum_to"), 2);
}

TEST_F(EagerTest, SavedTensorsDieAfterTheirNode) {
  const Tensor x = Leaf(0, {4});
  Tensor a = ops::Relu(e_, x);  // saves its result
  Tensor b = ops::Gelu(e_, a);  // saves its input, the same tensor
  Tensor c = ops::Relu(e_, b);  // saves its result
  const BufferId first = e_.buffer(a);
  const BufferId second = e_.buffer(b);
  const BufferId third = e_.buffer(c);
  a.reset();
  b.reset();
  EXPECT_TRUE(builder_.IsAlive(first));    // saved
  EXPECT_FALSE(builder_.IsAlive(second));  // nobody saved it
  const Tensor loss = ops::SumAll(e_, c);
  c.reset();
  Hooks hooks;
  e_.Backward(loss, hooks);
  const int backward = segment().ops_size() - 3;  // relu_backward, gelu_backward, relu_backward
  EXPECT_THAT(segment().ops(backward).frees(), Contains(third));
  EXPECT_THAT(segment().ops(backward).frees(), Not(Contains(first)));
  EXPECT_THAT(segment().ops(backward + 1).frees(), Not(Contains(first)));
  EXPECT_THAT(segment().ops(backward + 2).frees(), Contains(first));
}

TEST_F(EagerTest, GradientsDieBeforeTheTensorsTheirNodeSaved) {
  const Tensor x = Leaf(0, {4});
  Tensor a = ops::Relu(e_, ops::Neg(e_, x));
  const BufferId saved = e_.buffer(a);
  const Tensor b = ops::Neg(e_, a);
  a.reset();
  Hooks hooks;
  e_.Backward(b, hooks);
  for (const pb::Op& op : segment().ops()) {
    if (KernelOf(op) != "relu_backward") continue;
    // Its gradient is its first operand.
    EXPECT_THAT(op.frees(), ElementsAre(op.in(0), saved));
  }
}

TEST_F(EagerTest, EveryTensorOfAStepIsFreedExactlyOnce) {
  {
    const Tensor x = Leaf(0, {2, 3, 4});
    const Tensor weight = Leaf(1, {5, 4});
    const Tensor bias = Leaf(2, {5});
    Tensor h = ops::LayerNorm(e_, x, Leaf(3, {4}), nullptr, 1e-5, DType::kFp32);
    h = ops::Linear(e_, h, weight, &bias);
    h = ops::Add(e_, h, ops::Silu(e_, h));
    Tensor loss = ops::SumAll(e_, h);
    h.reset();
    Hooks hooks;
    e_.Backward(loss, hooks);
    EXPECT_THAT(hooks.calls, Contains("parameter 3"));
  }
  const std::map<int, int> frees = Frees();
  for (int b = 0; b < plan_.buffers_size(); ++b) {
    const bool resident =
        std::find(plan_.resident().begin(), plan_.resident().end(), b) != plan_.resident().end();
    EXPECT_EQ(frees.contains(b) ? frees.at(b) : 0, resident ? 0 : 1) << b;
  }
  EXPECT_TRUE(e_.LiveBuffers(0).empty());
}

TEST_F(EagerTest, ParametersUsedTwiceReportOneGradient) {
  const Tensor x = Leaf(0, {4});
  const Tensor sum = ops::Add(e_, ops::Relu(e_, x), ops::Gelu(e_, x));
  Hooks hooks;
  e_.Backward(sum, hooks);
  EXPECT_THAT(hooks.calls, ElementsAre("summed parameter 0", "end"));
}

TEST_F(EagerTest, HooksComeBeforeTheNodeAndPointsWhereTheyWereMarked) {
  const Tensor x = Leaf(0, {4});
  Tensor a = ops::Neg(e_, x);
  Tensor* values[] = {&a};
  ASSERT_TRUE(e_.MarkPoint(values, 7));
  const Tensor b = ops::Relu(e_, a);
  e_.HookGradient(b, 5);
  Hooks hooks;
  e_.Backward(ops::Neg(e_, b), hooks);
  EXPECT_THAT(hooks.calls, ElementsAre("before 5", "point 7", "parameter 0", "end"));
}

TEST_F(EagerTest, PointsPassOverValuesWithoutGradient) {
  Tensor x = e_.External(builder_.AddResident(16, pb::INPUT, stream_), DType::kFp32, {4});
  Tensor* values[] = {&x};
  EXPECT_FALSE(e_.MarkPoint(values, 7));
}

TEST_F(EagerTest, NothingIsSavedWithoutATrainableInput) {
  const Tensor x = e_.External(builder_.AddResident(16, pb::INPUT, stream_), DType::kFp32, {4});
  Tensor a = ops::Relu(e_, x);
  const BufferId buffer = e_.buffer(a);
  a.reset();
  EXPECT_FALSE(builder_.IsAlive(buffer));
}

TEST_F(EagerTest, LeafGradientsAreCastOnlyWhenAsked) {
  for (const bool cast : {false, true}) {
    const Tensor x = Leaf(0, {4}, DType::kBf16);
    const Tensor wide = Leaf(1, {4}, DType::kFp32);
    Hooks hooks;
    hooks.casts = cast;
    e_.Backward(ops::Mul(e_, x, wide), hooks);
    // The product is fp32, and so is the gradient of x before any cast.
    EXPECT_EQ(hooks.gradients[0].dtype(), cast ? DType::kBf16 : DType::kFp32);
    EXPECT_EQ(hooks.gradients[1].dtype(), DType::kFp32);
  }
}

}  // namespace
}  // namespace foreshard
