// Emulates eager PyTorch at planning time: what runs, in which order, what is kept and when memory
// is given back, without computing anything. Operators (eager/ops.h) launch kernels into a plan and
// record autograd nodes; Backward walks those nodes as PyTorch's engine does.
//
// Facts of the engine that this relies on (torch 2.14 and 2.15, checked against recorded runs):
// nodes run in reverse order of creation; a node's incoming gradients die when it has run, then the
// tensors it saved; a second gradient for the same value is added in place when nobody else refers
// to the first; a gradient of a larger broadcast shape is summed before it is handed on.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/eager/tensor.h"
#include "planner/lower/plan_builder.h"

namespace foreshard {

struct Node;

// Computes `out[i]`, the gradient of input i, from `in[o]`, the gradient of output o. Gradients
// that nobody needs (Node::NeedsGrad) stay empty, as do those that do not exist.
using BackwardFunction = void (*)(Eager&, Node&, std::span<Tensor> in, std::span<Tensor> out);

// Where the gradient of a node's input goes.
struct Edge {
  int node = -1;  // to this node's output `output`
  int output = 0;
  int parameter = -1;  // or to this parameter
  Dims shape;          // of the input; gradients are summed to it
  DType dtype = DType::kFp32;
  bool valid() const { return node >= 0 || parameter >= 0; }
};

struct Node {
  BackwardFunction backward = nullptr;
  std::vector<Edge> edges;  // one per input
  std::vector<Tensor> saved;
  // In a checkpointed region nothing is saved: of each tensor, its place among those that the
  // region's recomputation will save; -1 where there is none.
  int region = -1;
  std::vector<int> places;
  std::vector<Tensor> gradients;  // arrived so far, one slot per output
  Dims shape;                     // whatever the function needs to remember
  int64_t number = 0;
  double scalar = 0;
  double dropout = 0;
  int random = -1;  // what the forward drew, for a backward that draws it again
  bool flag = false;
  int module = -1;
  std::vector<int> pre_hooks;  // passed to GradientHooks::BeforeNode
  int hook = -1;               // of kHookNode nodes
  bool NeedsGrad(int input) const { return edges[input].valid(); }
};

// What the sharding library has registered with autograd.
class GradientHooks {
 public:
  virtual ~GradientHooks() = default;
  // The gradient of a value for which `hook` was registered is complete.
  virtual void BeforeNode(int hook) = 0;
  // Backward has reached the point that MarkPoint recorded.
  virtual void AtPoint(int hook) = 0;
  // The gradient of a parameter is complete; the receiver keeps or drops it. `summed` when several
  // uses of the parameter contributed: it waited in the engine until the last of them.
  virtual void ParameterGradient(int parameter, Tensor gradient, bool summed) = 0;
  // The dtype in which the gradient of a parameter of `parameter_dtype` is kept.
  virtual DType GradientDType(int parameter, DType made, DType parameter_dtype) const = 0;
  // The gradient of a leaf that was split (Eager::SplitLeaf), from those of its parts; null where
  // none has come.
  virtual Tensor JoinGradients(int hook, std::span<Tensor> gradients);
  // All nodes have run; the seed of the backward is still alive.
  virtual void AtEnd() = 0;
};

// How a region of the forward is recomputed.
struct CheckpointRule {
  bool reentrant = false;
  bool early_stop = true;
  std::vector<std::string> kept;  // operators as the op library names PyTorch's: "mm"
  bool every_second_mm = false;   // of "mm" keep the 1st, 3rd, ... result
};

class Eager {
 public:
  Eager(PlanBuilder& builder, StreamId stream) : builder_(builder), stream_(stream) {}
  Eager(const Eager&) = delete;
  Eager& operator=(const Eager&) = delete;

  PlanBuilder& builder() { return builder_; }
  // Tensors of `tokens` rows whose last dimension is `vocab_size` count as logits.
  void MarkLogits(int64_t vocab_size, int64_t tokens);
  // While true every new tensor counts as logits and loss.
  void set_in_loss(bool in_loss) { in_loss_ = in_loss; }

  // ---- tensors
  // A new storage that the next launch allocates. Empty strides mean contiguous.
  Tensor Empty(DType dtype, const Dims& shape, const Dims& strides = {});
  // A tensor on a buffer that this emulation neither allocates nor frees.
  Tensor External(BufferId buffer, DType dtype, const Dims& shape);
  // Gives a tensor its memory, with the next op; launches do so for what they write.
  void Allocate(const Tensor& t);
  // Gives a tensor a buffer that the next op allocates, to be freed with its last reference.
  void Adopt(const Tensor& t, BufferId buffer);
  // From now on nobody here frees the tensor's buffer.
  BufferId Disown(const Tensor& t);
  // Moves an external tensor, and every view of it, to another buffer.
  void Rebind(const Tensor& t, BufferId buffer);
  Tensor View(const Tensor& base, const Dims& shape, const Dims& strides, int64_t offset);
  BufferId buffer(const Tensor& t) const { return storages_[t->storage].buffer; }
  // Marks a leaf: gradients of `t` go to GradientHooks::ParameterGradient.
  void MakeLeaf(const Tensor& t, int parameter);
  // True when nobody but `t` refers to its storage.
  bool IsSoleReference(const Tensor& t) const;

  // ---- kernels
  void Launch(std::string_view kernel, std::initializer_list<const Tensor*> in,
              std::initializer_list<const Tensor*> out, const KernelAttr& attr = {});

  // The op launched last draws `random`, or numbers that no other op has drawn. Returns which.
  int Draw(int random = -1);
  // Numbers of an earlier micro-batch are its own.
  void ForgetDraws() { draws_ = 0; }

  // ---- autograd
  // Records a node if any input requires a gradient; returns null otherwise. The outputs then
  // require gradients. The pointer is valid until the next Record.
  Node* Record(BackwardFunction backward, std::initializer_list<const Tensor*> in,
               std::initializer_list<Tensor*> out);
  Node* Record(BackwardFunction backward, std::span<const Tensor* const> in,
               std::span<Tensor* const> out);
  // What the node's backward needs. Entries may be empty.
  void Save(Node& node, std::vector<Tensor> tensors);
  // A node that passes gradients of `values` through and calls AtPoint(hook) on the way. Values
  // that need no gradient are left alone; false when none does.
  bool MarkPoint(std::span<Tensor*> values, int hook);
  // Calls BeforeNode(hook) when the gradient of `value` is complete. REQUIRES: requires_grad.
  void HookGradient(const Tensor& value, int hook);
  // Makes the views parts of a leaf: one node collects their gradients,
  // GradientHooks::JoinGradients makes the leaf's of them.
  void SplitLeaf(const Tensor& leaf, std::span<Tensor*> views, int hook);
  // Whether several gradients were added up in the tensor's storage.
  bool IsSum(const Tensor& t) const { return storages_[t->storage].sum; }
  // As torch.is_grad_enabled().
  bool records() const { return records_; }
  // Runs the backward of `loss` with the hooks; the graph is gone afterwards.
  void Backward(const Tensor& loss, GradientHooks& hooks);

  // ---- activation checkpointing (eager/checkpoint.cc)
  // The operations of a region, as a function of the tensors that it is called with.
  using Body = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
  // Runs the body as torch.utils.checkpoint does: what autograd would save is not kept, and the
  // body runs again when backward first asks for any of it. Regions do not nest.
  std::vector<Tensor> Checkpoint(const CheckpointRule& rule, Body body, std::vector<Tensor> inputs);
  // Whether a body is running again.
  bool IsRecomputing() const { return replayed_ >= 0; }
  // Whether the body that runs again has made all that backward needs, and should return.
  bool MayStop() const;

  // Storages made by launches that are still alive, in order of creation, from `since` on.
  std::vector<BufferId> LiveBuffers(int since) const;
  int storages() const { return static_cast<int>(storages_.size()); }

 private:
  friend class Tensor;
  struct Storage {
    BufferId buffer = -1;  // -1 until a launch writes it
    int references = 0;
    bool external = false;
    bool logits = false;
    bool sum = false;  // of gradients
    int64_t bytes = 0;
    int64_t written_by = -1;  // launch
  };
  struct Region {
    CheckpointRule rule;
    Body body;
    std::vector<Tensor> inputs;
    int places = 0;  // tensors that its nodes would have saved
    int nodes = 0;   // that would have saved any and have not run
    int first_draw = 0;
    int64_t launches = 0;         // of the forward, or of the recomputation so far
    int64_t needed_launches = 0;  // before the last tensor is there
    int mms = 0;
    std::deque<std::vector<Tensor>> kept;  // results, in order of their launches
    bool recomputed = false;
    std::vector<Tensor> saved;  // by place
  };

  Tensor NewRecord(TensorRecord record);
  void Hold(int id) { ++tensors_[id].references; }
  void Let(int id);
  bool StartLaunch(std::string_view kernel, std::initializer_list<const Tensor*> out);
  bool Keeps(Region& region, std::string_view kernel) const;
  void TakeKept(Region& region, std::initializer_list<const Tensor*> out);
  void Unpack(Node& node);
  void Recompute(int region);
  std::vector<Tensor> Replay(int region, const std::vector<Tensor>& inputs);
  std::vector<Tensor> CheckpointReentrant(int region, const std::vector<Tensor>& inputs);
  static void JoinBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out);
  static void ReentrantBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out);
  void ReleaseNode(Node& node);
  void ForgetNodes(size_t from, bool ran);
  void RunNodes(int last, int first, GradientHooks& hooks);
  void RunNode(int index, GradientHooks& hooks);
  void Deliver(const Edge& edge, Tensor gradient, GradientHooks& hooks);
  Tensor FitGradient(const Edge& edge, Tensor gradient, const GradientHooks& hooks);
  Tensor AddGradients(Tensor first, Tensor second);

  PlanBuilder& builder_;
  const StreamId stream_;
  int64_t vocab_size_ = 0;
  int64_t tokens_ = 0;
  bool in_loss_ = false;
  int draws_ = 0;
  bool records_ = true;    // as torch.is_grad_enabled()
  bool launched_ = false;  // the last Launch put work on the stream
  int64_t launches_ = 0;
  int region_ = -1;                   // whose forward is running
  int replayed_ = -1;                 // whose body is running again
  GradientHooks* hooks_ = nullptr;    // of the backward that is running
  std::deque<TensorRecord> tensors_;  // stable: recipes hold references to shapes
  std::vector<int> free_records_;
  std::vector<Storage> storages_;
  std::deque<Node> nodes_;  // stable: a node that runs may record others
  std::deque<Region> regions_;
  struct LeafState {
    int uses = 0;  // edges that lead to it
    int arrived = 0;
    Tensor gradient;
  };
  std::vector<LeafState> leaves_;  // per parameter
  // Scratch of Launch.
  std::vector<TensorSpec> operand_specs_, result_specs_;
  std::vector<BufferId> in_buffers_, out_buffers_;
};

inline void Tensor::Hold() {
  if (eager_) eager_->Hold(id_);
}
inline void Tensor::reset() {
  if (Eager* eager = std::exchange(eager_, nullptr)) eager->Let(id_);
}
inline const TensorRecord& Tensor::record() const { return eager_->tensors_[id_]; }

}  // namespace foreshard
