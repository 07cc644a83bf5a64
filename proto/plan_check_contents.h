// What every buffer holds while a plan is walked. Internal to proto/plan_check*.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard::plan_check {

// What an op has left in a buffer.
enum class Data : uint8_t {
  kNothing,
  kAnything,
  kOnDevice,      // the shard of a parameter of a unit, copied from the host
  kCastShard,     // of a unit, as the following
  kKept,          // this rank's part of a parameter, kept after forward
  kSlice,         // this rank's part of a gather output
  kGathered,      // the whole of it
  kStacked,       // a parameter copied out as [rank][shard]
  kParameters,    // a parameter, copied out
  kSplit,         // the gradient of a parameter as [rank][shard]
  kFlatGradient,  // of a flat parameter
  kGradients,     // interleaved for a reduction
  kReduced,
  kFinalized,
  kNorms,    // of gradients, or their squares, of this rank
  kSquares,  // ... of all ranks of the shard group
};

struct Content {
  Data data = Data::kNothing;
  int32_t unit = -1;
  int32_t parameter = -1;  // the only one, -1 = all of the unit's
  bool kept = false;       // gathered from what fewer ranks than all have kept
  // Of a flat parameter's gradient: the ranks that it is the sum over, and what it was divided by.
  double ranks = 1;
  double divisor = 1;
};

// Of a buffer since it was allocated.
struct Life {
  pb::Category category = pb::CATEGORY_UNSPECIFIED;
  pb::Phase allocated = pb::PHASE_UNSPECIFIED;
};

// The contents of all buffers at one point of the walk, and that point for messages.
class Contents {
 public:
  explicit Contents(const pb::Plan& plan);

  const pb::Plan& plan() const { return plan_; }
  Content& operator[](int32_t buffer) { return contents_[static_cast<size_t>(buffer)]; }
  const Content& operator[](int32_t buffer) const { return contents_[static_cast<size_t>(buffer)]; }
  Life& life(int32_t buffer) { return lives_[static_cast<size_t>(buffer)]; }
  pb::Category& category(int32_t buffer) { return life(buffer).category; }
  pb::Category category(int32_t buffer) const {
    return lives_[static_cast<size_t>(buffer)].category;
  }

  void MoveTo(int program) { program_ = program; }
  void MoveTo(int segment, int op) {
    segment_ = segment;
    op_ = op;
  }
  int program() const { return program_; }
  Status Broken(std::string_view rule, const std::string& what) const;

  bool Holds(int32_t buffer, Data data, int32_t unit) const {
    return (*this)[buffer].data == data && (*this)[buffer].unit == unit;
  }
  // All that the op writes is this from now on.
  Status Leave(const pb::Op& op, const Content& content);
  // Its only operand was last written by the op that goes before it, for the same unit.
  Status Reads(const pb::Op& op, std::string_view rule, Data data, std::string_view what) const;

 private:
  const pb::Plan& plan_;
  int program_ = 0;
  int segment_ = 0;
  int op_ = 0;
  std::vector<Content> contents_;
  std::vector<Life> lives_;
};

// The same for units with a flat parameter, but for what a reduction ends with.
Status CheckFlatGather(Contents& contents, const pb::Op& op);
Status CheckFlatReduction(Contents& contents, const pb::Op& op);
// That what ends it reads is the mean over all ranks.
Status CheckMean(Contents& contents, const pb::Op& op);
// The unit whose flat parameter's gradients a kernel adds up in place, or -1.
int32_t UnitOfSum(const Contents& contents, const pb::Op& op);

// Rule gather of each kind of op, and what it leaves. REQUIRES: the op has its kind, and a unit.
Status CheckGather(Contents& contents, const pb::Op& op);
// Whether rule gather speaks of the op.
bool IsPartOfGather(const pb::Op& op);

// Rule reduce, likewise; an all_reduce of CLIP is none.
Status CheckReduction(Contents& contents, const pb::Op& op);
bool IsPartOfReduction(const pb::Op& op);

}  // namespace foreshard::plan_check
