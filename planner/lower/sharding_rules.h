// What a data-parallel library does around a model's forward and backward: an interface that the
// walk over the model (lower/forward.h), the optimizer and the step see, and what its
// implementations share. Each implementation is one library: lower/fsdp2.h, lower/fsdp1.h,
// lower/ddp.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/eager/eager.h"
#include "planner/lower/behaviour.h"
#include "planner/lower/layout.h"

namespace foreshard {

struct Streams {
  StreamId compute = 0, copy_in = 0, gather = 0, reduce = 0;
  StreamId all_reduce = kHost;  // with replicas
  StreamId host = kHost;        // with offload
};

// What the rules need to know of the choices.
struct Sharding {
  Behaviour behaviour;
  Streams streams;
  int ranks = 1;  // in the shard group
  int replicas = 1;
  int gather_group = 0;
  int reduce_group = 0;     // the same ranks; another communicator if asked for
  int replicate_group = 0;  // with replicas
  DType original = DType::kFp32;
  DType compute = DType::kFp32;
  DType reduce = DType::kFp32;
  int reduce_inputs = 1;  // that are kept at most
  std::optional<double> divide_factor;
  bool force_sum = false;
  bool offloads = false;           // shards, gradients and optimizer state are the host's
  bool casts_root_inputs = false;  // to the compute dtype; units below take what they get
};

// What has been decided for one unit.
struct UnitRules {
  int reshard_to = 0;  // ranks that keep the parameters between them after forward; 0 = all
  int reshard_group = -1;
  std::vector<int> forward_prefetch, backward_prefetch;  // units; empty = what the library does
  bool gathers_in_backward = true;
};

// What is different from one micro-batch to another.
struct BackwardRules {
  bool reduces = true;
  bool reshards = true;
  bool all_reduces = true;
  bool is_last = true;
  bool operator==(const BackwardRules&) const = default;
};

class ShardingRules : public GradientHooks {
 public:
  // The unsharded parameter, for kernels to read.
  virtual const Tensor& parameter(int index) const = 0;

  // A sharded gradient that the backward left; consumed by the optimizer. One for each unit, or,
  // where the library keeps them apart, for each parameter.
  struct Gradient {
    int unit;
    BufferId buffer;
    int parameter = kNone;
    int64_t offset = 0;  // elements, where it is a part of the buffer
    bool operator==(const Gradient&) const = default;
  };
  virtual const std::vector<Gradient>& gradients() const = 0;
  virtual const std::vector<UnitLayout>& layouts() const = 0;
  // Whether zero_grad gives the gradients' memory back.
  virtual bool frees_gradients() const { return true; }

  // ---- a step, micro-batch by micro-batch
  virtual void BeginMicroBatch(const BackwardRules& rules) = 0;
  // Everything that decides how the next micro-batch is lowered, apart from its rules: two that
  // find the same are the same program. Whatever counts is relative to now.
  virtual std::string State() const = 0;
  // The optimizer has run and gradients are dropped.
  virtual void EndStep() = 0;

  // ---- forward
  // `args` may be replaced by values that call back when backward reaches them.
  virtual void BeforeForward(int unit, std::span<Tensor*> args) = 0;
  virtual void AfterForward(int unit, std::span<Tensor* const> results) = 0;
};

}  // namespace foreshard
