// A plan made ready to run on one rank: what each op moves and computes, in terms of buffers and
// elements, with the sizes of all buffers. Nothing in here decides; it translates.
//
// Sizes are derived from what kernels, copies, collectives and the optimizer are given (shapes,
// element counts, dtypes), never from the plan's own byte counts, so that counting them while
// running tests those.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "exec/tensor_view.h"
#include "proto/base/dtype.h"
#include "proto/base/status.h"

namespace foreshard::pb {
class Plan;
}

namespace foreshard::exec {

// A row of the plan's kernel table. Views have no data yet.
struct PreparedKernel {
  std::string name;
  std::vector<TensorView> in;
  std::vector<TensorView> out;
  KernelAttributes attributes;
};

// ---- what an op does. `in` and `out` below are positions in the op's own lists.

struct RunKernel {
  int kernel = 0;                   // in PreparedPlan::kernels
  std::vector<int64_t> in_offsets;  // elements, one for each of `in`
};

// Elements that move from one buffer to another and change their type on the way: runs of `numel`.
struct CopyPiece {
  int in = 0;  // kZeros: zeros are written
  int out = 0;
  int64_t from = 0;  // elements
  int64_t to = 0;
  int64_t numel = 0;
  int64_t runs = 1;
  int64_t from_step = 0;  // elements from the start of a run to that of the next
  int64_t to_step = 0;
};
inline constexpr int kZeros = -1;

struct CopyElements {
  std::vector<DType> from;  // one for each of `in`
  DType to = DType::kFp32;
  std::vector<CopyPiece> pieces;
};

// `out` holds the slices of all ranks in the end, of which its own stands there before, or in `in`.
struct GatherSlices {
  int group = 0;
  int64_t slice = 0;  // elements of one rank
  DType dtype = DType::kFp32;
  bool is_in_place = true;
};

// Elements of the first of `in` times a factor into a part of `out`; to accumulate, what is there
// is added before it is multiplied.
struct ScaleInto {
  DType dtype = DType::kFp32;
  int64_t numel = 0;
  int64_t from = 0;  // elements
  int64_t to = 0;
  double factor = 1;
  bool accumulates = false;
};

// The elements of one member for all others, in place.
struct SendToAll {
  int group = 0;
  int root = 0;  // place in the group
  int64_t numel = 0;
  DType dtype = DType::kFp32;
};

// Adds the slices that all ranks hold for this one.
struct ReduceSlices {
  int group = 0;
  int64_t slice = 0;
  DType dtype = DType::kFp32;
  bool average = false;
  double factor = 1;  // of each rank's slice, before it is added
};

// Adds the buffers of all ranks; each has the sum in place of its own.
struct ReduceInPlace {
  int group = 0;
  int64_t numel = 0;
  DType dtype = DType::kFp32;
  bool average = false;
};

// In place.
struct DivideElements {
  int64_t numel = 0;
  DType dtype = DType::kFp32;
  double divisor = 1;
};

// The sum of both of `in`; `out` is one of them.
struct AddElements {
  int64_t numel = 0;
  DType dtype = DType::kFp32;
};

// Zeros the optimizer's state.
struct ZeroState {};

// This rank's elements of a gradient that is read as one tensor: the real ones of a trainable
// parameter, or all of a flat one's shard.
struct GradientSlice {
  DType dtype = DType::kFp32;  // and of the parameter
  int64_t numel = 0;
  int gradient = 0;           // in `in`
  int64_t gradient_from = 0;  // elements
};

// The norm of each slice, in `out`; then all of them in one buffer, or not; then their squares.
struct MeasureGradients {
  DType dtype = DType::kFp32;  // of the norms
  std::vector<GradientSlice> slices;
};

// In place, so that the norm of all is at most `max_norm`: the root of the sum of the squares that
// the last of `in` holds.
struct ScaleGradients {
  double max_norm = 0;
  DType dtype = DType::kFp32;  // of the squares
  std::vector<GradientSlice> slices;
};

enum class UpdateRule { kAdamW, kAdamW8Bit, kSgd };

// One update of the rank's elements of everything that is trained.
struct UpdateParameters {
  UpdateRule rule = UpdateRule::kAdamW;
  bool keeps_roots = false;    // all square roots at once, in the op's scratch
  bool counts_norm = false;    // what it reads is what the norm of the gradients is told of
  DType state = DType::kFp32;  // of moments that are not kept in 8 bits
  double learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, momentum = 0;
  struct Slice : GradientSlice {
    int parameter = 0;           // in `out`
    int state = -1;              // in `out`, the first of its state buffers
    int64_t parameter_from = 0;  // elements
  };
  std::vector<Slice> slices;
  std::vector<GradientSlice> gradients;  // the same by trainable parameter, in the plan's order
};

using Work = std::variant<std::monostate, RunKernel, CopyElements, GatherSlices, ReduceSlices,
                          ScaleInto, SendToAll, ReduceInPlace, DivideElements, AddElements,
                          ZeroState, MeasureGradients, ScaleGradients, UpdateParameters>;

inline constexpr int kNoStream = -1;
inline constexpr int kNoRandom = -1;

inline constexpr int kNoEvent = -1;

// One of the records of an event: that which `back` others have followed.
struct RecordWait {
  int event = 0;
  int back = 0;
};

struct PreparedOp {
  int stream = kNoStream;
  std::vector<int> waits;               // ops of the segment
  std::vector<int> host_waits;          // ops of the segment
  std::vector<RecordWait> event_waits;  // of the host
  std::vector<int> awaited_streams;     // everything issued on them so far
  std::vector<int> allocs, frees;       // buffers
  std::vector<int> in, out;             // buffers
  std::vector<int> scratch;             // buffers that only this op uses
  Work work;
  bool is_awaited = false;  // by a later op of the segment
  bool writes_loss = false;
  bool reads_input = false;
  int group = -1;       // of collectives
  int micro_batch = 0;  // of the segment's first repetition
  int random = kNoRandom;
  int record = kNoEvent;  // event that is recorded once the op is issued
  int record_stream = 0;
  std::string place;  // "step op 17 (copy_out, layers.3)", for messages
};

struct PreparedSegment {
  std::vector<PreparedOp> ops;
};

struct PreparedPlan {
  std::vector<PreparedKernel> kernels;
  std::vector<PreparedSegment> segments;
  std::vector<int64_t> buffer_bytes;  // on this rank
};

// REQUIRES: CheckPlan(plan) is OK and 0 <= rank < world size. Errors: kInvalidPlan where an op is
// given a buffer that does not hold what the op reads or writes, or nothing says what one holds.
StatusOr<PreparedPlan> Prepare(const pb::Plan& plan, int rank);

}  // namespace foreshard::exec
