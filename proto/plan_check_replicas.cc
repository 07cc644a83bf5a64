// Follows gradients through buckets and parameters from the ranks that update them: rules bucket,
// broadcast and owner.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "proto/plan_check_parts.h"
#include "proto/plan_check_walk.h"

namespace foreshard::plan_check {

namespace {

// The gradient of a parameter in a bucket.
struct Part {
  int32_t parameter = -1;
  int64_t elems = 0;
  int32_t source = -1;  // the buffer it was copied from
  bool reduced = false;
};
using Parts = std::map<int64_t, Part>;  // by offset

class ReplicaWalk {
 public:
  explicit ReplicaWalk(const pb::Plan& plan)
      : plan_(plan),
        reductions_(static_cast<size_t>(plan.parameters_size()), 0),
        copied_out_(reductions_.size(), -1),
        owed_(reductions_.size(), -1) {
    for (int p = 0; p < plan.parameters_size(); ++p) {
      if (!plan.parameters(p).frozen()) trainable_.push_back(p);
    }
    for (const pb::Buffer& b : plan.buffers()) has_buckets_ |= b.category() == pb::BUCKET;
  }

  void BeginProgram(int number) { program_ = number; }
  void BeginSegment(int, int segment, int) {
    unfinished_ = Finish();
    segment_ = segment;
    op_ = 0;
  }

  Status Visit(int segment, int index) {
    RETURN_IF_ERROR(unfinished_);
    segment_ = segment;
    op_ = index;
    const pb::Op& op = plan_.segments(segment).ops(index);
    for (const int32_t b : op.allocs()) parts_.erase(b);
    switch (op.kind_case()) {
      case pb::Op::kCompute:
        Overwrite(op);
        return OkStatus();
      case pb::Op::kBucketCopyIn:
        return CopyIn(op);
      case pb::Op::kAllReduce:
        return IsBucket(op.out(0)) ? Reduce(op) : OkStatus();
      case pb::Op::kBucketCopyOut:
        return CopyOut(op);
      case pb::Op::kClipNorms:
      case pb::Op::kClipScale:
        return has_buckets_ ? ReadsGradients(op) : OkStatus();
      case pb::Op::kOptimizerStep:
        return Update(op);
      case pb::Op::kBroadcast:
        return Broadcast(op);
      default:
        return OkStatus();
    }
  }

  Status EndProgram(int) {
    RETURN_IF_ERROR(unfinished_);
    RETURN_IF_ERROR(Finish());
    for (const int32_t p : trainable_) {
      if (owed_[p] < 0) continue;
      return Broken("broadcast", fmt::format("parameter \"{}\", which rank {} has updated, is not "
                                             "broadcast",
                                             Path(p), owed_[p]));
    }
    return OkStatus();
  }

 private:
  bool IsBucket(int32_t b) const { return plan_.buffers(b).category() == pb::BUCKET; }
  const std::string& Path(int32_t p) const { return plan_.parameters(p).path(); }

  Status Broken(std::string_view rule, const std::string& what) const {
    return plan_check::Broken(
        rule, OpPlace(plan_, plan_.segments(segment_), op_),
        fmt::format("{} (program \"{}\")", what, WalkedProgram(plan_, program_).name()));
  }

  // The part at the offset, if it is the parameter's and was reduced.
  const Part* Reduced(int32_t bucket, int64_t offset, int32_t parameter) const {
    const auto parts = parts_.find(bucket);
    if (parts == parts_.end()) return nullptr;
    const auto part = parts->second.find(offset);
    if (part == parts->second.end() || !part->second.reduced) return nullptr;
    return part->second.parameter == parameter ? &part->second : nullptr;
  }

  void Overwrite(const pb::Op& op) {
    for (const int32_t b : op.out()) std::ranges::replace(copied_out_, b, -1);
  }

  Status CopyIn(const pb::Op& op) {
    const pb::BucketCopyIn& copy = op.bucket_copy_in();
    const int64_t from = op.in_offsets().empty() ? 0 : op.in_offsets(0);
    const bool moves = IsBucket(op.in(0));
    if (moves && !Reduced(op.in(0), from, copy.parameter())) {
      return Broken("bucket", fmt::format("moves what is no reduced gradient of \"{}\"",
                                          Path(copy.parameter())));
    }
    if (copy.accumulate() && !Reduced(op.out(0), copy.offset(), copy.parameter())) {
      return Broken("bucket", fmt::format("adds to what is no reduced gradient of \"{}\"",
                                          Path(copy.parameter())));
    }
    Parts& parts = parts_[op.out(0)];
    RETURN_IF_ERROR(MakeRoom(copy, parts));
    parts[copy.offset()] = {copy.parameter(), copy.elems(), op.in(0), moves};
    copied_in_ |= !moves;
    return OkStatus();
  }

  // Of a reduction before, what lies there goes.
  Status MakeRoom(const pb::BucketCopyIn& copy, Parts& parts) const {
    for (auto it = parts.begin(); it != parts.end();) {
      const bool apart = it->first >= copy.offset() + copy.elems() ||
                         copy.offset() >= it->first + it->second.elems;
      if (!apart && !it->second.reduced) {
        return Broken("bucket",
                      fmt::format("overlaps the gradient of \"{}\"", Path(it->second.parameter)));
      }
      it = apart ? std::next(it) : parts.erase(it);
    }
    return OkStatus();
  }

  Status Reduce(const pb::Op& op) {
    if (op.all_reduce().reduction() != pb::ReduceScatter::SUM) {
      return Broken("bucket", "does not add up its bucket");
    }
    int64_t elems = 0;
    for (auto& [offset, part] : parts_[op.out(0)]) {
      if (part.reduced) {
        return Broken("bucket", fmt::format("the gradient of \"{}\" was not copied in since it was "
                                            "reduced",
                                            Path(part.parameter)));
      }
      part.reduced = true;
      elems += part.elems;
      ++reductions_[part.parameter];
    }
    if (elems == op.all_reduce().elems()) return OkStatus();
    return Broken("bucket", fmt::format("its bucket has {} elements, gradients fill {}",
                                        op.all_reduce().elems(), elems));
  }

  Status CopyOut(const pb::Op& op) {
    const pb::BucketCopyOut& copy = op.bucket_copy_out();
    const Part* part = Reduced(op.in(0), copy.offset(), copy.parameter());
    if (part == nullptr || part->source != op.out(0)) {
      return Broken("bucket",
                    fmt::format("does not copy the reduced gradient of \"{}\" to where it "
                                "was copied from",
                                Path(copy.parameter())));
    }
    copied_out_[copy.parameter()] = op.out(0);
    return OkStatus();
  }

  // A micro-batch that reduces any gradient reduces all, once.
  Status Finish() {
    const bool reduces =
        copied_in_ || std::ranges::any_of(reductions_, [](int n) { return n > 0; });
    copied_in_ = false;
    for (const int32_t p : trainable_) {
      const int times = std::exchange(reductions_[p], 0);
      if (!reduces || times == 1) continue;
      return Broken("bucket",
                    fmt::format("before it, the gradient of \"{}\" is reduced {} times in "
                                "a micro-batch, expected once",
                                Path(p), times));
    }
    return OkStatus();
  }

  Status ReadsGradients(const pb::Op& op) const {
    for (size_t i = 0; i < trainable_.size(); ++i) {
      const int at = static_cast<int>(i);
      const int32_t p = trainable_[i];
      if (at < op.in_size()) {
        const int64_t from = at < op.in_offsets_size() ? op.in_offsets(at) : 0;
        if (IsBucket(op.in(at)) ? Reduced(op.in(at), from, p) != nullptr
                                : copied_out_[p] == op.in(at)) {
          continue;
        }
      }
      return Broken("bucket", fmt::format("does not read the reduced gradient of \"{}\" as its "
                                          "operand {}",
                                          Path(p), i));
    }
    return OkStatus();
  }

  Status Update(const pb::Op& op) {
    if (has_buckets_) RETURN_IF_ERROR(ReadsGradients(op));
    const auto& owners = op.optimizer_step().owners();
    for (int i = 0; i < owners.size(); ++i) owed_[trainable_[i]] = owners[i];
    return OkStatus();
  }

  Status Broadcast(const pb::Op& op) {
    for (const int32_t p : trainable_) {
      if (plan_.parameters(p).sharded_buffer() != op.out(0)) continue;
      const int32_t owner = std::exchange(owed_[p], -1);
      if (owner == op.broadcast().root()) return OkStatus();
      return Broken("broadcast",
                    owner < 0 ? fmt::format("nobody has updated \"{}\" since it was sent", Path(p))
                              : fmt::format("sends \"{}\" from rank {}, which rank {} has updated",
                                            Path(p), op.broadcast().root(), owner));
    }
    return Broken("broadcast", fmt::format("buffer {} is no trained parameter", op.out(0)));
  }

  const pb::Plan& plan_;
  std::vector<int32_t> trainable_;  // in the plan's order
  bool has_buckets_ = false;
  int program_ = 0;
  int segment_ = 0;
  int op_ = 0;
  Status unfinished_;  // what the segment before has left undone
  bool copied_in_ = false;
  std::map<int32_t, Parts> parts_;   // by bucket
  std::vector<int> reductions_;      // per parameter, in this micro-batch
  std::vector<int32_t> copied_out_;  // per parameter, the buffer
  std::vector<int32_t> owed_;        // per parameter, the rank that has updated it
};

}  // namespace

Status CheckReplicas(const pb::Plan& plan) {
  ReplicaWalk walk(plan);
  return WalkPlan(plan, walk);
}

}  // namespace foreshard::plan_check
