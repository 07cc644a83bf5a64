#include "planner/graph/shape_rules.h"

#include <fmt/format.h>

namespace foreshard {
namespace {

std::string Text(const Dims& d) { return fmt::format("[{}]", fmt::join(d.begin(), d.end(), ", ")); }

bool Broadcasts(const Dims& from, const Dims& to) {
  const int shift = to.size() - from.size();
  if (shift < 0) return false;
  for (int i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[i + shift]) return false;
  }
  return true;
}

class Rules {
 public:
  Rules(const ModelGraph& graph, const GraphOp& op, int outputs, std::vector<GraphValue>* results)
      : graph_(graph), op_(op), outputs_(outputs), results_(*results) {}

  Status Run() {
    results_.clear();
    switch (op_.kind) {
      case OpKind::kEmbedding:
        return Embedding();
      case OpKind::kLinear:
        return Linear(/*in=*/1, /*out_dim=*/0);
      case OpKind::kConv1d:
        return Linear(/*in=*/0, /*out_dim=*/1);
      case OpKind::kLayerNorm:
      case OpKind::kRmsNorm:
        return Norm();
      case OpKind::kAdd:
      case OpKind::kMul:
        return Binary();
      case OpKind::kRelu:
      case OpKind::kGelu:
      case OpKind::kGeluNew:
      case OpKind::kDropout:
      case OpKind::kSilu:
        return Unary();
      case OpKind::kChunk:
        return Chunk();
      case OpKind::kSplitHeads:
        return SplitHeads();
      case OpKind::kMergeHeads:
        return MergeHeads();
      case OpKind::kRepeatKv:
        return RepeatKv();
      case OpKind::kAttention:
        return Attention();
      case OpKind::kParamSum:
        return Result({}, ValueType::kFloat);
      case OpKind::kRope:
        return Rope();
      case OpKind::kPositions:
        return Positions();
      case OpKind::kRotaryTables:
        return RotaryTables();
    }
    return Internal("unknown graph operation");
  }

 private:
  const Dims& Shape(int i) const { return graph_.values[op_.in[i]].shape; }
  const Dims& Param(int i) const { return graph_.parameters[op_.params[i]].shape; }

  Status Arity(size_t inputs) const {
    if (op_.in.size() != inputs) {
      return InvalidInput(fmt::format("takes {} inputs, found {}", inputs, op_.in.size()));
    }
    return OkStatus();
  }
  Status Rank(int input, int rank) const {
    if (Shape(input).size() != rank) {
      return InvalidInput(fmt::format("input {} has shape {}, expected {} dimensions", input,
                                      Text(Shape(input)), rank));
    }
    return OkStatus();
  }
  Status Result(Dims shape, ValueType type) {
    if (outputs_ != 1) return InvalidInput(fmt::format("gives 1 result, found {} names", outputs_));
    results_.push_back({shape, type});
    return OkStatus();
  }

  Status Embedding() {
    RETURN_IF_ERROR(Arity(1));
    Dims out = Shape(0);
    if (out.size() >= Dims::kMax) return InvalidInput("indices have too many dimensions");
    out.push_back(Param(0)[1]);
    return Result(out, ValueType::kFloat);
  }
  // A bias, where there is one, is as wide as the result.
  Status Bias(const Dims& out) const {
    if (op_.params.size() < 2 || Param(1)[0] == out.back()) return OkStatus();
    return InvalidInput(
        fmt::format("bias has shape {}, the result {} features", Text(Param(1)), out.back()));
  }
  // `in` and `out_dim` are the weight's dimensions of these features.
  Status Linear(int in, int out_dim) {
    RETURN_IF_ERROR(Arity(1));
    Dims out = Shape(0);
    if (out.empty() || out.back() != Param(0)[in]) {
      return InvalidInput(fmt::format("input has shape {}, weight {} expects {} features",
                                      Text(out), Text(Param(0)), Param(0)[in]));
    }
    out.back() = Param(0)[out_dim];
    RETURN_IF_ERROR(Bias(out));
    return Result(out, ValueType::kFloat);
  }
  Status Norm() {
    RETURN_IF_ERROR(Arity(1));
    if (Shape(0).empty() || Shape(0).back() != Param(0)[0]) {
      return InvalidInput(
          fmt::format("input has shape {}, weight {}", Text(Shape(0)), Text(Param(0))));
    }
    RETURN_IF_ERROR(Bias(Shape(0)));
    return Result(Shape(0), ValueType::kFloat);
  }
  Status Binary() {
    RETURN_IF_ERROR(Arity(2));
    const Dims& a = Shape(0);
    const Dims& b = Shape(1);
    if (Broadcasts(b, a)) return Result(a, ValueType::kFloat);
    if (Broadcasts(a, b)) return Result(b, ValueType::kFloat);
    return InvalidInput(fmt::format("shapes {} and {} differ", Text(a), Text(b)));
  }
  Status Unary() {
    RETURN_IF_ERROR(Arity(1));
    return Result(Shape(0), ValueType::kFloat);
  }
  Status Chunk() {
    RETURN_IF_ERROR(Arity(1));
    Dims out = Shape(0);
    if (op_.n < 2 || op_.n > 3 || op_.n != outputs_ || out.empty() || out.back() % op_.n != 0) {
      return InvalidInput(fmt::format(
          "shape {} cannot be cut into {} equal parts with {} names (2 and 3 are known)", Text(out),
          op_.n, outputs_));
    }
    out.back() /= op_.n;
    for (int i = 0; i < outputs_; ++i) results_.push_back({out, ValueType::kFloat});
    return OkStatus();
  }
  Status SplitHeads() {
    RETURN_IF_ERROR(Arity(1));
    RETURN_IF_ERROR(Rank(0, 3));
    const Dims& x = Shape(0);
    if (op_.n < 1 || x[2] % op_.n != 0) {
      return InvalidInput(fmt::format("{} features do not split into {} heads", x[2], op_.n));
    }
    return Result({x[0], op_.n, x[1], x[2] / op_.n}, ValueType::kFloat);
  }
  Status MergeHeads() {
    RETURN_IF_ERROR(Arity(1));
    RETURN_IF_ERROR(Rank(0, 4));
    const Dims& x = Shape(0);
    return Result({x[0], x[2], x[1] * x[3]}, ValueType::kFloat);
  }
  Status RepeatKv() {
    RETURN_IF_ERROR(Arity(1));
    RETURN_IF_ERROR(Rank(0, 4));
    if (op_.n < 1) return InvalidInput(fmt::format("repeat count {}, expected at least 1", op_.n));
    Dims out = Shape(0);
    out[1] *= op_.n;
    return Result(out, ValueType::kFloat);
  }
  Status Attention() {
    RETURN_IF_ERROR(Arity(3));
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(Rank(i, 4));
    const Dims& q = Shape(0);
    const Dims& k = Shape(1);
    const bool heads_fit = op_.grouped ? k[1] > 0 && q[1] % k[1] == 0 : q[1] == k[1];
    if (!(Shape(2) == k) || q[0] != k[0] || q[3] != k[3] || !heads_fit) {
      return InvalidInput(
          fmt::format("query {}, key {}, value {} do not fit", Text(q), Text(k), Text(Shape(2))));
    }
    return Result(q, ValueType::kFloat);
  }
  Status Positions() {
    if (op_.n > 0 && graph_.seq > op_.n) {
      return InvalidArgument(
          fmt::format("seq: {} tokens, but the model knows {} positions", graph_.seq, op_.n));
    }
    return Result({1, graph_.seq}, ValueType::kInt64);
  }
  Status Rope() {
    RETURN_IF_ERROR(Arity(4));
    if (outputs_ != 2) return InvalidInput("rope gives 2 results");
    for (int i = 0; i < 2; ++i) {
      RETURN_IF_ERROR(Rank(i, 4));
      if (Shape(i)[3] % 2 != 0) {
        return InvalidInput(fmt::format("head size {} is odd", Shape(i)[3]));
      }
      results_.push_back({Shape(i), ValueType::kFloat});
    }
    return OkStatus();
  }
  Status RotaryTables() {
    RETURN_IF_ERROR(Arity(1));
    if (outputs_ != 2) return InvalidInput("rotary tables give 2 results");
    const Dims table{1, graph_.seq, op_.n};
    results_.assign(2, {table, ValueType::kFloat});
    return OkStatus();
  }

  const ModelGraph& graph_;
  const GraphOp& op_;
  const int outputs_;
  std::vector<GraphValue>& results_;
};

}  // namespace

Status InferShapes(const ModelGraph& graph, const GraphOp& op, int outputs,
                   std::vector<GraphValue>* results) {
  return Rules(graph, op, outputs, results).Run();
}

}  // namespace foreshard
