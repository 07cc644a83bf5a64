// A model made concrete for one batch shape: its module tree, its parameters and the operations of
// one forward as a DAG with the shape of every value. Knows no hardware and no kernels.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/eager/dims.h"
#include "proto/base/dtype.h"
#include "proto/base/status.h"
#include "proto/model.pb.h"

namespace foreshard {

using ValueId = int;
inline constexpr int kNone = -1;

struct GraphModule {
  std::string path;  // "" for the root
  std::string class_name;
  int parent = kNone;
  const pb::Module* source = nullptr;  // borrowed from the pb::Model
};

struct GraphParameter {
  std::string path;
  Dims shape;
  bool frozen = false;
  int module = kNone;
  std::vector<std::string> shared_with;  // other paths of the same tensor, named_parameters order
  const pb::ModelParameter* source = nullptr;  // borrowed from the pb::Model
};

enum class OpKind {
  kEmbedding,
  kLinear,
  kConv1d,  // a linear layer whose weight is stored [in, out]
  kLayerNorm,
  kRmsNorm,
  kAdd,
  kMul,
  kRelu,
  kGelu,
  kGeluNew,
  kDropout,
  kSilu,
  kChunk,
  kSplitHeads,
  kMergeHeads,
  kRepeatKv,
  kAttention,
  kParamSum,
  kRope,
  kPositions,
  kRotaryTables,
};

struct GraphOp {
  OpKind kind;
  int module = kNone;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  std::vector<int> params;  // indices of GraphParameter: weight, then bias
  int64_t n = 0;            // count or heads, by kind
  bool causal = false;
  bool grouped = false;
  double p = 0;         // probability of dropping
  std::string backend;  // attention that the model itself asks for, "" = none
};

// Whole-number values are indices or positions; the others follow the compute dtype, except tables.
enum class ValueType { kFloat, kInt64 };

struct GraphValue {
  Dims shape;
  ValueType type = ValueType::kFloat;
};

// What a forward does, in program order.
struct GraphItem {
  enum class Kind {
    kEnter,  // a module's forward begins
    kExit,   // ... and has returned; `values` are what it returned
    kOp,
    kDrop,  // nothing in the program refers to the value any more
  };
  Kind kind;
  int index;                    // module, op or value
  std::vector<ValueId> values;  // kEnter: arguments; kExit: results
};

struct GraphInput {
  std::string name;
  pb::ModelInput::Kind kind;
  ValueId value = kNone;
  bool requires_grad = false;
};

// Edges run from the op that makes a value to the ops that read it.
using OpDag = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

struct ModelGraph {
  std::vector<GraphModule> modules;        // named_modules order
  std::vector<GraphParameter> parameters;  // named_parameters order, each tensor once
  std::vector<GraphValue> values;
  std::vector<GraphOp> ops;  // program order
  std::vector<GraphItem> items;
  std::vector<GraphInput> inputs;
  std::vector<ValueId> outputs;
  OpDag dag;  // vertex i is ops[i]
  int64_t batch = 0;
  int64_t seq = 0;

  int FindModule(const std::string& path) const;  // kNone when there is none
  bool IsAtOrBelow(int module, int ancestor) const;
};

// "layers.0.w1.weight" is of "layers.0.w1".
std::string ModuleOfParameter(const std::string& path);

// Only modules and parameters, for models whose forward is not known. REQUIRES: as below.
StatusOr<ModelGraph> BuildModuleTree(const pb::Model& model);

// Flattens the model for inputs [batch, seq]. Errors are kInvalidInput: shapes that do not meet,
// names without a value, modules without a forward. REQUIRES: `model` outlives the graph.
StatusOr<ModelGraph> BuildModelGraph(const pb::Model& model, int64_t batch, int64_t seq);

}  // namespace foreshard
