#include "tests/exec/gradient_check.h"

#include <cmath>
#include <map>

#include "exec/random.h"
#include "tests/testing/sequential.h"

namespace foreshard {
namespace {

class KeepGradients : public GradientHooks {
 public:
  void BeforeNode(int) override {}
  void AtPoint(int) override {}
  void ParameterGradient(int parameter, Tensor gradient, bool) override {
    gradients[parameter] = std::move(gradient);
  }
  DType GradientDType(int, DType made, DType) const override { return made; }
  void AtEnd() override {}
  std::map<int, Tensor> gradients;
};

// The expression's plan and everything that has to stay alive with it.
class Experiment {
 public:
  explicit Experiment(const GradientCase& c)
      : c_(c),
        builder_(plan_),
        stream_(builder_.AddStream("compute", pb::Stream::COMPUTE)),
        e_(builder_, stream_),
        runner_(plan_) {
    builder_.BeginSegment("step");
    for (const GradientInput& input : c.inputs) AddInput(input);
    out_ = c.expression(e_, inputs_);
    forward_ops_ = segment().ops_size();
    weights_ = Resident(DType::kFp32, out_.shape());
    Tensor loss;
    {
      Tensor weighted = ops::Mul(e_, out_, weights_);
      loss = ops::SumAll(e_, weighted);
    }
    e_.Backward(loss, hooks_);
  }

  GradientResult Run() {
    for (size_t i = 0; i < inputs_.size(); ++i) Fill(inputs_[i], c_.inputs[i], i);
    Fill(weights_, {weights_.shape(), GradientInput::kAny, 0}, inputs_.size());
    runner_.Run(segment());
    GradientResult result;
    std::vector<std::pair<double, double>> pairs;  // computed, estimated
    for (const auto& [parameter, gradient] : hooks_.gradients) Compare(parameter, gradient, pairs);
    double largest = 0;
    for (const auto& [computed, estimated] : pairs) {
      largest = std::max(largest, std::fabs(estimated));
    }
    for (const auto& [computed, estimated] : pairs) {
      const double error = std::fabs(computed - estimated) / largest;
      if (!(error <= result.worst)) result.worst = error;  // not-a-number counts
    }
    result.gradients = static_cast<int>(pairs.size());
    for (int i = 0; i < segment().ops_size(); ++i) {
      (i < forward_ops_ ? result.forward : result.backward).insert(KernelOf(i));
    }
    return result;
  }

 private:
  const pb::Segment& segment() const { return plan_.segments(0); }
  const std::string& KernelOf(int op) const {
    return plan_.kernels(segment().ops(op).compute().kernel()).name();
  }

  Tensor Resident(DType dtype, const Dims& shape) {
    const int64_t bytes = Numel(shape) * SizeOf(dtype);
    return e_.External(builder_.AddResident(bytes, pb::SHARDED_PARAM, stream_), dtype, shape);
  }

  void AddInput(const GradientInput& input) {
    const bool indices = input.kind == GradientInput::kIndices;
    inputs_.push_back(Resident(indices ? DType::kInt64 : DType::kFp32, input.shape));
    if (indices || input.kind == GradientInput::kConstant) return;
    e_.MakeLeaf(inputs_.back(), static_cast<int>(inputs_.size()) - 1);
  }

  void Fill(const Tensor& t, const GradientInput& input, uint64_t key) {
    const int buffer = e_.buffer(t);
    if (input.kind == GradientInput::kIndices) {
      const std::span<int64_t> values = runner_.values<int64_t>(buffer);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<int64_t>(exec::RandomBits(key, i) % input.limit);
      }
      return;
    }
    const std::span<float> values = runner_.values<float>(buffer);
    for (size_t i = 0; i < values.size(); ++i) {
      const float magnitude = 0.3F + exec::RandomUniform(key, 2 * i);
      const bool negative = exec::RandomBits(key, 2 * i + 1) % 2 == 1;
      values[i] = negative && input.kind != GradientInput::kPositive ? -magnitude : magnitude;
      if (input.kind == GradientInput::kSixteenths) values[i] = std::round(values[i] * 16) / 16;
    }
  }

  // The weighted sum of what the expression gives now.
  double Loss() {
    runner_.Run(segment(), 0, forward_ops_);
    const std::span<const float> weights = runner_.values<float>(e_.buffer(weights_));
    double loss = 0;
    for (int64_t i = 0; i < out_.numel(); ++i)
      loss += double{weights[i]} * double{Element(out_, i)};
    return loss;
  }

  // Element i in row-major order. REQUIRES: fp32.
  float Element(const Tensor& t, int64_t i) {
    int64_t offset = t->offset;
    for (int d = t.shape().size() - 1; d >= 0; --d) {
      offset += i % t.shape()[d] * t->strides[d];
      i /= t.shape()[d];
    }
    return runner_.values<float>(e_.buffer(t))[offset];
  }

  // The slope by differences over one and two steps; together they have no error of third order.
  double Slope(float& x, double step) {
    const float x0 = x;
    const auto difference = [&](double h) {
      x = static_cast<float>(x0 + h);
      const double above = x;
      const double loss_above = Loss();
      x = static_cast<float>(x0 - h);
      const double below = x;
      const double loss_below = Loss();
      x = x0;
      return (loss_above - loss_below) / (above - below);
    };
    return (4 * difference(step) - difference(2 * step)) / 3;
  }

  void Compare(int parameter, const Tensor& gradient,
               std::vector<std::pair<double, double>>& pairs) {
    std::vector<float> computed;
    for (int64_t i = 0; i < gradient.numel(); ++i) computed.push_back(Element(gradient, i));
    const bool exact = c_.inputs[parameter].kind == GradientInput::kSixteenths;
    const std::span<float> x = runner_.values<float>(e_.buffer(inputs_[parameter]));
    for (size_t i = 0; i < x.size(); ++i) {
      pairs.emplace_back(computed[i], Slope(x[i], exact ? 0.125 : 0.02));
    }
  }

  const GradientCase& c_;
  pb::Plan plan_;
  PlanBuilder builder_;
  StreamId stream_;
  Eager e_;
  SequentialRunner runner_;
  KeepGradients hooks_;
  std::vector<Tensor> inputs_;
  Tensor out_, weights_;
  int forward_ops_ = 0;
};

}  // namespace

GradientResult CheckGradient(const GradientCase& c) { return Experiment(c).Run(); }

}  // namespace foreshard
